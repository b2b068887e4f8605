//! The keys that a batch of changes touches: the rows to read and lock before the batch is decided.

use std::collections::BTreeSet;

use windlass_core::{AlarmId, Effect, LockName, Name, TaskId};
use windlass_store::{Change, MessageId, RecordKind, SessionId, TaskChange, UniqueKey};

use crate::rows::{act_code, wakeup_code};

/// What a batch of changes touches, each kind in the order in which it is locked: kinds as they stand here, too.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Tasks that go on.
    pub(crate) tasks: BTreeSet<TaskId>,
    /// New tasks. That nobody has their ids needs no look beforehand: writing them would fail.
    pub(crate) new_tasks: BTreeSet<TaskId>,
    /// Tasks that only get log lines. They are locked, because their lines are numbered when they are written: a reader that
    /// follows the numbers would miss a line that is committed after a higher number.
    pub(crate) logged: BTreeSet<TaskId>,
    /// What tasks that go on waited for.
    pub(crate) waits: BTreeSet<(TaskId, i64)>,
    /// Sessions from which claims are taken.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// Locks, and exclusive queues that tasks have.
    pub(crate) locks: BTreeSet<LockName>,
    /// Some of them are deleted, which raises the floor. It is read and locked after the locks, where there are any.
    pub(crate) raises_lock_floor: bool,
    /// Alarms.
    pub(crate) alarms: BTreeSet<AlarmId>,
    /// Messages that are consumed.
    pub(crate) messages: BTreeSet<MessageId>,
    /// Idempotency keys of new tasks. As with their ids: writing one that is taken would fail.
    pub(crate) scopes: BTreeSet<[u8; 32]>,
    /// What new tasks have in common with others.
    pub(crate) unique: BTreeSet<UniqueKey>,
    /// Records.
    pub(crate) records: BTreeSet<(RecordKind, Name)>,
    /// Flows that get another version.
    pub(crate) flows: BTreeSet<Name>,
}

impl Keys {
    /// What these changes touch.
    pub(crate) fn of(changes: &[Change]) -> Self {
        let mut keys = Self::default();
        for change in changes {
            match change {
                Change::Task(change) => keys.add_task(change),
                Change::Alarm(change) => {
                    keys.alarms.extend(change.alarm.as_ref().map(|alarm| alarm.id.clone()));
                    keys.messages.extend(change.consumes.clone());
                }
                Change::Lock(change) => {
                    keys.locks.insert(change.lock.name.clone());
                    keys.raises_lock_floor |= !change.kept;
                    keys.messages.extend(change.consumes.clone());
                }
                Change::Consume(message) => drop(keys.messages.insert(message.clone())),
                Change::Flow(stored) => drop(keys.flows.insert(stored.flow.name.clone())),
                Change::Key(change) => drop(keys.scopes.insert(change.key.scope)),
                Change::Logs(lines) => keys.logged.extend(lines.iter().map(|line| line.task)),
                Change::Record(change) => drop(keys.records.insert((change.kind, change.name.clone()))),
                Change::Queue(_)
                | Change::Limit(_)
                | Change::Journal(_)
                | Change::Audit(_)
                | Change::Announced(_)
                | Change::Probe => {}
            }
        }
        // Nobody else can write lines of a new task.
        let Self { logged, new_tasks, .. } = &mut keys;
        logged.retain(|task| !new_tasks.contains(task));
        keys
    }

    fn add_task(&mut self, change: &TaskChange) {
        let id = change.task.id;
        self.messages.extend(change.consumes.clone());
        if change.before == 0 {
            self.new_tasks.insert(id);
            self.scopes.extend(change.submit_key.as_ref().map(|key| key.scope));
            self.unique.extend(change.unique());
            return;
        }
        self.tasks.insert(id);
        self.locks.extend(change.fence.as_ref().map(|(name, _)| name.clone()));
        for effect in &change.waits {
            match effect {
                Effect::Wait(waiting) => drop(self.waits.insert((id, wakeup_code(waiting.key)))),
                Effect::Forget(wakeup) => drop(self.waits.insert((id, wakeup_code(*wakeup)))),
                Effect::Send(_) => {}
            }
        }
        for lost in &change.lost {
            self.waits.insert((id, act_code(lost.key)));
            self.sessions.insert(lost.session);
        }
    }

    /// The tasks whose rows are read and locked, in their order. With `careful` also those that are expected to be new.
    pub(crate) fn locked_tasks(&self, careful: bool) -> BTreeSet<TaskId> {
        let new = self.new_tasks.iter().filter(|_| careful);
        self.tasks.iter().chain(&self.logged).chain(new).copied().collect()
    }

    /// Whether idempotency keys must be read. That one is taken is seen when it is written; but where another task stands
    /// for the new one, or with `careful`, it must be known before.
    pub(crate) fn reads_scopes(&self, careful: bool) -> bool {
        !self.scopes.is_empty() && (careful || !self.unique.is_empty())
    }

    /// Whether nothing must be read before these changes are decided, unless writing them fails.
    pub(crate) fn is_all_new(&self) -> bool {
        let Self {
            tasks,
            new_tasks: _,
            logged,
            waits,
            sessions,
            locks,
            raises_lock_floor: _,
            alarms,
            messages,
            scopes: _,
            unique,
            records,
            flows,
        } = self;
        tasks.is_empty()
            && logged.is_empty()
            && waits.is_empty()
            && sessions.is_empty()
            && locks.is_empty()
            && alarms.is_empty()
            && messages.is_empty()
            && unique.is_empty()
            && records.is_empty()
            && flows.is_empty()
    }
}
