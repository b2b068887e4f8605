//! Decides a batch on what the database has: an outcome for each change, and the rows to write.
//!
//! Changes are decided in their order, each on the state that those before it leave. So a batch has the same outcomes as if
//! each change had been committed alone, except that a change that builds on a failed one fails as well.

use std::{collections::BTreeMap, sync::Arc};

use windlass_core::{ActState, Effect, Task, TaskId, Timestamp, Wakeup, is_adhoc};
use windlass_store::{
    AlarmChange, BuiltOn, Change, Envelope, LockChange, MessageId, Outcome, SessionId, StoredFlow, SubmitKey,
    TaskChange, stored,
};

use crate::rows::{
    Found, FoundLock, FoundWait, SubmitKeyWrite, TaskWrite, WaitWrite, Writes, act_code, wakeup_code,
};

/// A decided batch.
pub(crate) struct Decided {
    /// One for each change, in their order. They hold once the writes are on disk.
    pub(crate) outcomes: Vec<Outcome>,
    /// What is to be written.
    pub(crate) writes: Writes,
}

/// Decides `changes` on what was found.
pub(crate) fn decide(changes: &[Change], found: Found) -> Decided {
    let mut deciding = Deciding { found, writes: Writes::default() };
    let mut built_on = BuiltOn::default();
    let outcomes =
        changes.iter().map(|change| built_on.outcome(change, || deciding.decide(change))).collect();
    Decided { outcomes, writes: deciding.writes }
}

struct Deciding {
    found: Found,
    writes: Writes,
}

impl Deciding {
    fn decide(&mut self, change: &Change) -> Outcome {
        match change {
            Change::Task(change) => self.task(change),
            Change::Alarm(change) => self.alarm(change),
            Change::Lock(change) => self.lock(change),
            Change::Consume(message) => self.if_it_waits(Some(message)),
            Change::Flow(stored) => self.flow(stored),
            Change::Queue(change) => {
                self.writes.queues.insert(change.name.clone(), change.paused.clone());
                Outcome::Committed
            }
            Change::Limit(change) => {
                self.writes.limits.insert(change.name.clone(), change.limit.clone());
                Outcome::Committed
            }
            Change::Key(change) => self.taken(Some(&change.key)).unwrap_or_else(|| {
                self.write_key(&change.key, change.task, change.at, true);
                Outcome::Committed
            }),
            Change::Logs(lines) => {
                self.writes.logs.extend(lines.iter().cloned());
                Outcome::Committed
            }
            Change::Announced(announced) => {
                self.writes.announced.extend_from_slice(announced);
                Outcome::Committed
            }
            Change::Probe => {
                self.writes.probe = true;
                Outcome::Committed
            }
        }
    }

    fn task(&mut self, change: &TaskChange) -> Outcome {
        let id = change.task.id;
        if let Some(taken) = self.taken(change.submit_key.as_ref()) {
            return taken;
        }
        let version = self.found.tasks.get(&id).copied().unwrap_or(0);
        let is_fenced_out = change.is_fenced_out(|name| self.found.locks.get(name)?.holder);
        if !self.waits(change.consumes.as_ref())
            || version != change.before
            || is_fenced_out
            || self.is_overlooked(change)
        {
            return Outcome::Conflict;
        }
        if self.is_heard(change) {
            return Outcome::Heard;
        }
        if let Some(task) = self.standing_for(change) {
            return Outcome::Repeats { task };
        }
        self.write_task(change);
        Outcome::Committed
    }

    /// What becomes of a change whose key is taken.
    fn taken(&self, key: Option<&SubmitKey>) -> Option<Outcome> {
        let (task, fingerprint) = self.found.submit_keys.get(&key?.scope)?;
        Some(Outcome::KeyTaken { task: *task, fingerprint: *fingerprint })
    }

    fn write_key(&mut self, key: &SubmitKey, task: TaskId, created_at: Timestamp, is_other: bool) {
        self.found.submit_keys.insert(key.scope, (task, key.fingerprint));
        self.writes.submit_keys.push(SubmitKeyWrite { key: key.clone(), task, created_at, is_other });
    }

    /// Whether the message waits that is to be consumed, if one is.
    fn waits(&self, message: Option<&MessageId>) -> bool {
        message.is_none_or(|message| self.found.messages.contains(message))
    }

    /// Whether the change would take an attempt away from a session that its author did not know to have it.
    fn is_overlooked(&self, change: &TaskChange) -> bool {
        let keys = change.waits.iter().filter_map(|effect| match effect {
            Effect::Wait(waiting) => Some(waiting.key),
            Effect::Forget(wakeup) => Some(*wakeup),
            Effect::Send(_) => None,
        });
        keys.into_iter().any(|wakeup| {
            let wait = self.found.waits.get(&(change.task.id, wakeup_code(wakeup)));
            let held = wait.and_then(|wait| Some((wait.attempt, wait.claim?)));
            matches!((wakeup, held), (Wakeup::Act(key), Some((attempt, claim)))
                if change.overlooks(key, attempt, claim))
        })
    }

    /// Whether a session was heard of that the change takes for lost, or has the claim no more.
    fn is_heard(&self, change: &TaskChange) -> bool {
        change.lost.iter().any(|lost| {
            let wait = self.found.waits.get(&(change.task.id, act_code(lost.key)));
            let is_theirs = wait.is_some_and(|wait| wait.claim == Some((lost.claim, lost.session)));
            let is_over = self.found.sessions.get(&lost.session).is_none_or(|until| *until <= lost.at);
            !is_theirs || !is_over
        })
    }

    /// The task that a new one is deduplicated to.
    fn standing_for(&self, change: &TaskChange) -> Option<TaskId> {
        let id = self.found.unique.get(&change.unique()?)?;
        let (first, is_held) = self.found.firsts.get(id)?;
        change.is_stood_for_by(first, *is_held).then_some(*id)
    }

    fn write_task(&mut self, change: &TaskChange) {
        let task = &change.task;
        self.found.tasks.insert(task.id, task.state.events);
        if let Some(key) = &change.submit_key {
            self.write_key(key, task.id, task.input.created_at, false);
        }
        if let Some((first, _)) = self.found.firsts.get_mut(&task.id) {
            first.clone_from(task);
        }
        if let Some(unique) = change.unique() {
            let was_there = self.found.unique.insert(unique.clone(), task.id).is_some();
            self.found.firsts.insert(task.id, (task.clone(), false));
            let entry = self.writes.unique.entry(unique).or_insert((task.id, was_there));
            entry.0 = task.id;
        }
        if change.before == 0 && is_adhoc(task.flow.name.as_str()) {
            let stored = StoredFlow { flow: task.flow.clone(), created_at: task.input.created_at };
            self.writes.brought.insert(task.flow.name.clone(), stored);
        }
        self.consume(change.consumes.as_ref());
        self.send(&change.messages);
        self.writes.logs.extend(change.logs.iter().cloned());
        if !change.events.is_empty() {
            let last = change.before + change.events.len() as u64;
            self.writes.history.push((task.id, last, stored::write_events(&change.events)));
            if change.announces {
                self.writes.unannounced.push((task.id, change.before, last));
            }
        }
        let waits = self.write_waits(change);
        let write = self.writes.tasks.entry(task.id).or_insert_with(|| TaskWrite {
            task: task.clone(),
            is_new: change.before == 0,
            scope: change.submit_key.as_ref().map(|key| key.scope),
            members: Default::default(),
            results: BTreeMap::new(),
            waits: BTreeMap::new(),
        });
        write.task.clone_from(task);
        write.members.extend(change.changed_members());
        write.results.extend(change.results.iter().map(|(key, result)| (act_code(*key), result.clone())));
        write.waits.extend(waits);
    }

    /// What becomes of the rows that the change names. A claim stays with its attempt as long as that is ready, and what
    /// was handed out last is known of the act until its task ends.
    fn write_waits(&mut self, change: &TaskChange) -> BTreeMap<i64, WaitWrite> {
        let id = change.task.id;
        let mut writes = BTreeMap::new();
        let mut claims: BTreeMap<i64, (u32, (u64, SessionId))> = BTreeMap::new();
        for effect in &change.waits {
            let (key, waiting) = match effect {
                Effect::Wait(waiting) => (waiting.key, Some(waiting)),
                Effect::Forget(wakeup) => (*wakeup, None),
                Effect::Send(_) => continue,
            };
            let code = wakeup_code(key);
            let row = self.found.waits.entry((id, code)).or_default();
            claims.extend(row.claim.take().map(|claim| (code, (row.attempt, claim))));
            let write = match waiting {
                Some(waiting) => {
                    row.attempt = waiting.attempt;
                    WaitWrite::Put { waiting: waiting.clone(), keeps_claim: false }
                }
                None => forget(&change.task, key, row),
            };
            writes.insert(code, write);
        }
        for (code, (attempt, claim)) in claims {
            if let Some(WaitWrite::Put { waiting, keeps_claim }) = writes.get_mut(&code)
                && waiting.ready.is_some()
                && waiting.attempt == attempt
                && let Some(row) = self.found.waits.get_mut(&(id, code))
            {
                (*keeps_claim, row.claim) = (true, Some(claim));
            }
        }
        writes
    }

    fn alarm(&mut self, change: &AlarmChange) -> Outcome {
        let version = |alarm| self.found.alarms.get(alarm).copied().unwrap_or(0);
        let fits = change.alarm.as_ref().is_none_or(|alarm| version(&alarm.id) == change.before);
        if !self.waits(change.consumes.as_ref()) || !fits {
            return Outcome::Conflict;
        }
        self.consume(change.consumes.as_ref());
        if let Some(alarm) = &change.alarm {
            let version = change.before + 1;
            let was_there = self.found.alarms.insert(alarm.id.clone(), version).is_some();
            let entry = self.writes.alarms.entry(alarm.id.clone());
            let write = entry.or_insert_with(|| (alarm.clone(), version, was_there));
            (write.0, write.1) = (alarm.clone(), version);
        }
        Outcome::Committed
    }

    fn lock(&mut self, change: &LockChange) -> Outcome {
        let name = &change.lock.name;
        let version = self.found.locks.get(name).map(|lock| lock.version);
        let current = version.unwrap_or(self.found.lock_floor);
        if !self.waits(change.consumes.as_ref()) || current != change.before {
            return Outcome::Conflict;
        }
        self.consume(change.consumes.as_ref());
        self.send(&change.messages);
        if let Some(place) = change.left {
            self.writes.lock_waiters.insert((name.clone(), place), None);
        }
        if let Some((place, waiter)) = change.joined {
            self.writes.lock_waiters.insert((name.clone(), place), Some(waiter));
        }
        let write = self.writes.locks.entry(name.clone()).or_insert((None, version.is_some()));
        if change.kept {
            write.0 = Some(change.lock.clone());
            self.found.locks.insert(name.clone(), FoundLock::of(&change.lock));
        } else {
            write.0 = None;
            self.found.locks.remove(name);
            self.found.lock_floor = self.found.lock_floor.max(change.lock.version);
            self.writes.lock_floor = Some(self.found.lock_floor);
        }
        Outcome::Committed
    }

    fn if_it_waits(&mut self, message: Option<&MessageId>) -> Outcome {
        if !self.waits(message) {
            return Outcome::Conflict;
        }
        self.consume(message);
        Outcome::Committed
    }

    fn flow(&mut self, stored: &StoredFlow) -> Outcome {
        let flow = &stored.flow;
        let newest = self.found.flows.get(&flow.name).copied().unwrap_or(0);
        if flow.version != newest + 1 {
            return Outcome::Conflict;
        }
        self.found.flows.insert(flow.name.clone(), flow.version);
        self.writes.flows.push(stored.clone());
        Outcome::Committed
    }

    fn send(&mut self, messages: &[Envelope]) {
        for Envelope { id, message } in messages {
            self.found.messages.insert(id.clone());
            self.writes.sent.insert(id.clone(), message.clone());
        }
    }

    fn consume(&mut self, message: Option<&MessageId>) {
        let Some(message) = message else { return };
        self.found.messages.remove(message);
        // One that was sent in the same batch never comes to the database.
        if self.writes.sent.remove(message).is_none() {
            self.writes.consumed.insert(message.clone());
        }
    }
}

/// What becomes of a row by which nothing is waited for any more.
fn forget(task: &Arc<Task>, wakeup: Wakeup, row: &FoundWait) -> WaitWrite {
    let act = if let Wakeup::Act(key) = wakeup { task.act(key) } else { None };
    let parked = act.filter(|act| act.state == ActState::Parked);
    match parked.filter(|act| row.handed_out == Some(act.attempt)) {
        Some(act) => WaitWrite::Rest { attempt: act.attempt },
        None => WaitWrite::Delete,
    }
}
