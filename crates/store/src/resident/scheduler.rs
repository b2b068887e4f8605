//! The state in memory: active tasks and everything that is derived from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    ActKey, ActState, AlarmId, Effect, Flow, Free, Lock, LockName, Millis, Name, Ready, TaskId, Timestamp,
    Waiting, Wakeup,
    planted::{Bug, is_planted},
};

use super::{
    bodies::Bodies,
    claims::{Claims, Held},
    entry::Entry,
    queue::Queues,
    rest::{Departures, WakePlace},
    sessions::Sessions,
    submit_keys::SubmitKeys,
    unused_flows::Leaving,
};
use crate::port::{
    Change, Due, Envelope, KeyChange, LostClaim, MessageId, Now, Outcome, StoredAlarm, StoredFlow, SubmitKey,
    TaskChange, UniqueKey,
};

/// The versions of alarms, as far as there are any.
pub(super) type AlarmVersions = BTreeMap<AlarmId, u64>;

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
    pub(super) submit_keys: SubmitKeys,
    /// Keys of unique tasks that are on their way to the disk.
    pub(super) unique: BTreeMap<UniqueKey, TaskId>,
    /// All versions of each flow, oldest first.
    pub(super) flows: BTreeMap<Name, Vec<StoredFlow>>,
    /// Versions of flows whose rows are damaged.
    pub(super) damaged_flows: BTreeMap<Name, BTreeSet<u32>>,
    /// Alarms changed by commits on their way to the disk.
    pub(super) alarms: BTreeMap<Arc<str>, StoredAlarm>,
    /// Messages on disk that no staged change has consumed.
    pub(super) messages: BTreeMap<MessageId, Envelope>,
    /// Messages on their way to the disk that no staged change has consumed.
    pub(super) staged_messages: BTreeMap<MessageId, Envelope>,
    /// Locks that somebody has or waits for, or had a moment ago.
    pub(super) locks: BTreeMap<LockName, Lock>,
    /// No deleted lock had a higher version.
    pub(super) lock_floor: u64,
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
    /// Checks a change and makes it what later commits build on. `versions` are those of alarms on disk.
    pub(super) fn stage(&mut self, change: &Change, versions: &AlarmVersions) -> Outcome {
        match change {
            Change::Task(change) => self.stage_task(change),
            Change::Alarm(change) => self.stage_alarm(change, versions),
            Change::Lock(change) => self.stage_lock(change),
            Change::Consume(message) if self.has_message(Some(message)) => {
                self.consume(Some(message));
                Outcome::Committed
            }
            Change::Consume(_) => Outcome::Conflict,
            Change::Flow(stored) => {
                let versions = self.flows.entry(stored.flow.name.clone()).or_default();
                if stored.flow.version != versions.last().map_or(0, |newest| newest.flow.version) + 1 {
                    return Outcome::Conflict;
                }
                versions.push(stored.clone());
                Outcome::Committed
            }
            Change::Queue(change) => {
                self.queues.set_paused(&change.name, change.paused.clone());
                Outcome::Committed
            }
            Change::Limit(change) => {
                self.set_limit(change);
                Outcome::Committed
            }
            Change::Key(KeyChange { key, task, .. }) => self.taken(Some(key)).unwrap_or_else(|| {
                self.submit_keys.stage(*task, key);
                Outcome::Committed
            }),
            Change::Logs(_) | Change::Announced(_) | Change::Probe => Outcome::Committed,
        }
    }

    fn stage_task(&mut self, change: &TaskChange) -> Outcome {
        let id = change.task.id;
        if let Some(taken) = self.taken(change.submit_key.as_ref()) {
            return taken;
        }
        if !self.has_message(change.consumes.as_ref())
            || change.is_fenced_out(|name| self.locks.get(name)?.holder)
            || change.acts().any(|key| {
                let overlooks =
                    |held: &Held| change.overlooks(key, held.attempt, (held.number, held.session));
                self.claims.get(id, key).is_some_and(overlooks)
            })
        {
            return Outcome::Conflict;
        }
        let is_lost =
            |lost: &LostClaim| self.claims.has(id, lost) && self.sessions.is_over(lost.session, lost.at);
        let builds_on = |entry: &Entry| entry.task.state.events == change.before;
        if self.active.get(&id).is_some_and(builds_on) && !change.lost.iter().all(is_lost) {
            return Outcome::Heard;
        }
        let is_new = change.before == 0 && self.has_flow(&change.task.flow);
        let overtakes = self.active.get(&id).is_some_and(|entry| entry.under_way > 0);
        match self.active.get_mut(&id) {
            Some(_) if self.generation != change.generation => return Outcome::Conflict,
            Some(entry) if entry.task.state.events != change.before && !is_planted(Bug::LostUpdate) => {
                return Outcome::Conflict;
            }
            Some(entry) => {
                let before = entry.body;
                entry.become_task(change);
                let after = entry.body;
                self.count_body(before, after);
                if is_planted(Bug::BodyDroppedEarly) {
                    self.depart_body(id);
                }
            }
            None if !is_new => return Outcome::Conflict,
            None => {
                let new = Entry::new(change.task.clone(), BTreeSet::new());
                self.enter(id, Entry { under_way: 1, ..new });
            }
        }
        if let Some(key) = &change.submit_key {
            self.submit_keys.stage(id, key);
        }
        self.stage_unique(change);
        self.consume(change.consumes.as_ref());
        self.stage_messages(&change.messages);
        for key in change.waits.iter().filter_map(wakeup) {
            self.withdraw(id, key);
            if overtakes {
                self.overtaken.insert((id, key), change.task.state.events);
            }
        }
        self.drop_stale_claims(change);
        Outcome::Committed
    }

    /// What becomes of a change whose key is taken.
    pub(super) fn taken(&self, key: Option<&SubmitKey>) -> Option<Outcome> {
        let (task, key) = self.submit_keys.get(&key?.scope)?;
        Some(Outcome::KeyTaken { task: *task, fingerprint: key.fingerprint })
    }

    /// Whether the flow is in the catalogue: one that was read there may not have reached the disk.
    fn has_flow(&self, flow: &Arc<Flow>) -> bool {
        let stored = self.flow(&flow.name, Some(flow.version)).map(|stored| stored.flow);
        stored.is_some_and(|stored| Arc::ptr_eq(&stored, flow) || stored == *flow)
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
            let goes_on = |attempt: u32| {
                task.act(key).is_some_and(|act| act.state == ActState::Ready && act.attempt == attempt)
            };
            if self.claims.get(id, key).is_none_or(|held| goes_on(held.attempt)) {
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

/// What an effect is about, if it tells what something waits for.
pub(super) fn wakeup(effect: &Effect) -> Option<Wakeup> {
    match effect {
        Effect::Wait(waiting) => Some(waiting.key),
        Effect::Forget(key) => Some(*key),
        Effect::Send(_) => None,
    }
}
