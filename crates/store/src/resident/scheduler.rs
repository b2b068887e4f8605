//! The state in memory: active tasks and everything that is derived from them.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{
    ActKey, AlarmId, Effect, Free, Lock, LockName, Millis, Name, Ready, TaskId, Timestamp, Waiting, Wakeup,
    planted::{Bug, is_planted},
};

use super::{
    bodies::Bodies,
    claims::{Claims, Held},
    entry::Entry,
    overlay::{Overlay, Reads},
    queue::Queues,
    rest::{Departures, WakePlace},
    sessions::Sessions,
    unused_flows::Leaving,
};
use crate::port::{
    Change, Due, Envelope, KeyChange, MessageId, Now, Record, RecordChange, RecordKind, StoredFlow,
    TaskChange, UniqueKey,
};

/// The state in memory.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    pub(super) active: BTreeMap<TaskId, Entry>,
    pub(super) bodies: Bodies,
    pub(super) queues: Queues,
    pub(super) due: BTreeSet<(Timestamp, TaskId, Wakeup)>,
    /// By how much the wall time is ahead of the date.
    pub(super) ahead: Millis,
    pub(super) claims: Claims,
    pub(super) sessions: Sessions,
    /// Reads of the disk that are under way.
    pub(super) reads: Reads,
    /// The tasks that idempotency keys name, with the fingerprints of what was submitted.
    pub(super) submit_keys: Overlay<[u8; 32], (TaskId, [u8; 32])>,
    /// The newest tasks of unique keys.
    pub(super) unique: Overlay<UniqueKey, TaskId>,
    /// Versions of alarms.
    pub(super) alarms: Overlay<AlarmId, u64>,
    /// The newest tasks of flows that tasks bring along.
    pub(super) brought: Overlay<Name, TaskId>,
    /// All versions of each flow, oldest first.
    pub(super) flows: BTreeMap<Name, Vec<StoredFlow>>,
    /// Versions of flows whose rows are damaged.
    pub(super) damaged_flows: BTreeMap<Name, BTreeSet<u32>>,
    /// Messages on disk that no staged change has consumed.
    pub(super) messages: BTreeMap<MessageId, Envelope>,
    /// Messages on their way to the disk that no staged change has consumed.
    pub(super) staged_messages: BTreeMap<MessageId, Envelope>,
    /// Locks that somebody has or waits for, or had a moment ago.
    pub(super) locks: BTreeMap<LockName, Lock>,
    /// No deleted lock had a higher version.
    pub(super) lock_floor: u64,
    /// Records.
    pub(super) records: BTreeMap<(RecordKind, Name), Record>,
    /// Attempts that no session has and that are not handed out: of paused tasks, and those that are to stop.
    pub(super) kept_back: BTreeSet<(TaskId, ActKey)>,
    /// Claims that staged changes have dropped since they were last taken away.
    pub(super) dropped: Vec<(TaskId, Held)>,
    /// The version of the latest staged change that names a wake-up, where changes before it were on their way to the
    /// disk: those publish nothing for it.
    pub(super) overtaken: BTreeMap<(TaskId, Wakeup), u64>,
    /// How often the state was built from the rows: what was read of the one before is void.
    pub(super) generation: u64,
    /// Ready attempts that wait for the adoption grace, by act.
    pub(super) recovered: BTreeMap<(TaskId, ActKey), u32>,
    /// Tasks that are to leave memory.
    pub(super) departures: Departures,
    /// Every task is in memory that is to be woken up to here: those that rest are woken later.
    pub(super) awake_until: WakePlace,
    /// How many tasks have come back to memory.
    pub(super) woken: u64,
    /// Flows that tasks brought along and that go.
    pub(super) leaving: Leaving,
}

impl Scheduler {
    /// Makes a change that was decided what later commits build on.
    pub(super) fn stage(&mut self, change: &Change) {
        self.consume(change.consumes());
        match change {
            Change::Task(change) => self.stage_task(change),
            Change::Alarm(change) => {
                let version = change.alarm.as_ref().map(|alarm| (alarm.id.clone(), change.before + 1));
                version.into_iter().for_each(|(id, version)| self.alarms.stage(id, version));
            }
            Change::Lock(change) => self.stage_lock(change),
            Change::Flow(stored) => {
                self.flows.entry(stored.flow.name.clone()).or_default().push(stored.clone());
            }
            Change::Queue(change) => self.queues.set_paused(&change.name, change.paused.clone()),
            Change::Limit(change) => self.set_limit(change),
            Change::Key(KeyChange { key, task, .. }) => {
                self.submit_keys.stage(key.scope, (*task, key.fingerprint));
            }
            Change::Record(change) => self.stage_record(change),
            Change::Consume(_)
            | Change::Journal(_)
            | Change::Audit(_)
            | Change::Logs(_)
            | Change::Announced(_)
            | Change::Probe => {}
        }
    }

    fn stage_record(&mut self, change: &RecordChange) {
        let key = (change.kind, change.name.clone());
        match change.record() {
            Some(record) => drop(self.records.insert(key, record)),
            None => drop(self.records.remove(&key)),
        }
    }

    fn stage_task(&mut self, change: &TaskChange) {
        let id = change.task.id;
        let mut overtakes = false;
        match self.active.get_mut(&id) {
            Some(entry) => {
                overtakes = entry.under_way > 0;
                let before = entry.body;
                entry.become_task(change);
                let after = entry.body;
                self.count_body(before, after);
                if is_planted(Bug::BodyDroppedEarly) {
                    self.depart_body(id);
                }
            }
            None => {
                let new = Entry::new(change.task.clone(), BTreeSet::new());
                self.enter(id, Entry { under_way: 1, ..new });
            }
        }
        if let Some(key) = &change.submit_key {
            self.submit_keys.stage(key.scope, (id, key.fingerprint));
        }
        if let Some(key) = change.unique().filter(|_| !is_planted(Bug::UniqueOverlooked)) {
            self.unique.stage(key, id);
        }
        self.stage_messages(&change.messages);
        for key in change.waits.iter().filter_map(wakeup) {
            self.withdraw(id, key);
            if overtakes {
                self.overtaken.insert((id, key), change.task.state.events);
            }
        }
        self.drop_stale_claims(change);
    }

    /// Takes what an act waits for out of queues and due times.
    fn withdraw(&mut self, id: TaskId, key: Wakeup) {
        let Some(entry) = self.active.get_mut(&id) else { return };
        let Some(index) = entry.published.iter().position(|waiting| waiting.key == key) else { return };
        let waiting = entry.published.swap_remove(index);
        self.hide(id, &waiting);
    }

    /// Takes what was published of a task out of queues and due times.
    fn hide(&mut self, id: TaskId, waiting: &Waiting) {
        if let Some(due_at) = waiting.due_at {
            self.due.remove(&(due_at, id, waiting.key));
        }
        if let (Some(ready), Wakeup::Act(act_key)) = (&waiting.ready, waiting.key) {
            self.leave_line(id, act_key, ready);
        }
    }

    /// The task is in memory no more.
    pub(super) fn forget(&mut self, id: TaskId) {
        let Some(entry) = self.remove(id) else { return };
        for waiting in &entry.published {
            self.hide(id, waiting);
        }
    }

    /// An attempt that no session has waits in its queue, or is kept back from it.
    pub(super) fn stand_in_line(&mut self, id: TaskId, key: ActKey, ready: &Ready) {
        if ready.free == Free::HandOut {
            self.queues.insert(id, key, ready);
        } else {
            self.kept_back.insert((id, key));
        }
    }

    /// An attempt waits no more: it is over, or a session has it.
    pub(super) fn leave_line(&mut self, id: TaskId, key: ActKey, ready: &Ready) {
        if ready.free == Free::HandOut {
            self.queues.remove(id, key, ready);
        } else {
            self.kept_back.remove(&(id, key));
        }
    }

    /// Forgets claims of attempts that are over by a change.
    fn drop_stale_claims(&mut self, change: &TaskChange) {
        let (id, task) = (change.task.id, &change.task);
        for key in change.acts() {
            if task.act(key).is_some_and(|act| act.deadline_at.is_some()) {
                self.claims.kept(id, key);
            }
            if self.claims.get(id, key).is_none_or(|held| task.has_ready(key, held.attempt)) {
                continue;
            }
            let Some(claim) = self.claims.remove(id, key) else { continue };
            self.sessions.drop_hold(claim.session, id, claim.key);
            self.queues.let_go(&claim);
            self.dropped.push((id, claim));
        }
    }

    /// When something is due by the wall time. A start at a date, and the deadline that counts from it, are later by as
    /// much as the wall time is ahead of the date; everything else is due after a time that has passed.
    fn due_at(&self, (at, task, wakeup): &(Timestamp, TaskId, Wakeup)) -> Timestamp {
        if self.ahead == Millis(0) {
            return *at;
        }
        let has_date = || self.active.get(task).is_some_and(|entry| entry.task.input.at.is_some());
        match wakeup {
            Wakeup::Start => *at + self.ahead,
            Wakeup::Deadline if has_date() => *at + self.ahead,
            Wakeup::Deadline | Wakeup::Act(_) => *at,
        }
    }

    /// When the next is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        if self.ahead == Millis(0) {
            return self.due.first().map(|(at, ..)| *at);
        }
        self.due.iter().map(|due| self.due_at(due)).min()
    }

    /// What is due, earliest first.
    pub(super) fn due(&self, now: Now, limit: usize) -> Vec<Due> {
        let wakes = self
            .due
            .iter()
            .take_while(|(at, ..)| *at <= now.wall || is_planted(Bug::RetriedEarly))
            .filter(|due| self.due_at(due) <= now.wall || is_planted(Bug::RetriedEarly))
            .map(|(_, task, wakeup)| Due::Wake { task: *task, wakeup: *wakeup });
        let kept_back = self.kept_back.iter().filter_map(|(task, key)| {
            let attempt = self.active.get(task)?.task.act(*key)?.attempt;
            Due::of_free(*task, *key, attempt, self.published_ready(*task, *key)?.free)
        });
        let timed_out = self.claims.timed_out(now).map(Due::TimeOut);
        let taken = self.claims.to_keep(now).map(Due::Taken);
        wakes.chain(timed_out).chain(kept_back).chain(taken).take(limit).collect()
    }
}

/// What an effect is about, if it says what something waits for.
pub(super) fn wakeup(effect: &Effect) -> Option<Wakeup> {
    match effect {
        Effect::Wait(waiting) => Some(waiting.key),
        Effect::Forget(key) => Some(*key),
        Effect::Send(_) => None,
    }
}
