//! Decides a batch on what the database has: an outcome for each change, and the rows to write.
//!
//! Changes are decided in their order by the rule that all stores share, each on the state that those before it leave. So a
//! batch has the same outcomes as if each change had been committed alone, except that a change that builds on a failed one
//! fails as well.

use std::collections::BTreeMap;

use windlass_core::{TaskId, Timestamp, Waiting, Wakeup, is_adhoc};
use windlass_store::{
    AlarmChange, BuiltOn, Change, Envelope, LockChange, MessageId, Outcome, RecordChange, StoredFlow,
    SubmitKey, TaskChange, stored,
};

use crate::rows::{
    Found, FoundLock, FoundWait, SubmitKeyWrite, TaskWrite, WaitBefore, WaitWrite, Writes, act_code,
    wakeup_code,
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
    let mut outcome = |change| {
        let outcome = built_on.decide(change, &deciding.found, &deciding.found);
        if outcome == Outcome::Committed {
            deciding.write(change);
        }
        outcome
    };
    let outcomes = changes.iter().map(&mut outcome).collect();
    Decided { outcomes, writes: deciding.writes }
}

struct Deciding {
    found: Found,
    writes: Writes,
}

impl Deciding {
    /// Adds what a change writes, and has the changes after it find it.
    fn write(&mut self, change: &Change) {
        self.consume(change.consumes());
        match change {
            Change::Task(change) => self.write_task(change),
            Change::Alarm(change) => self.write_alarm(change),
            Change::Lock(change) => self.write_lock(change),
            Change::Consume(_) => {}
            Change::Flow(stored) => {
                self.found.flows.insert(stored.flow.name.clone(), stored.flow.version);
                self.writes.flows.push(stored.clone());
            }
            Change::Queue(change) => {
                self.writes.queues.insert(change.name.clone(), change.paused.clone());
            }
            Change::Limit(change) => {
                self.writes.limits.insert(change.name.clone(), change.limit.clone());
            }
            Change::Key(change) => self.write_key(&change.key, change.task, change.at, true),
            Change::Record(change) => self.write_record(change),
            Change::Journal(entries) => self.writes.journal.extend(entries.iter().cloned()),
            Change::Audit(entry) => self.writes.journal.push(entry.clone()),
            Change::Logs(lines) => self.writes.logs.extend(lines.iter().cloned()),
            Change::Announced(announced) => self.writes.announced.extend_from_slice(announced),
            Change::Probe => self.writes.probe = true,
        }
    }

    fn write_key(&mut self, key: &SubmitKey, task: TaskId, created_at: Timestamp, is_other: bool) {
        self.found.submit_keys.insert(key.scope, (task, key.fingerprint));
        self.writes.submit_keys.push(SubmitKeyWrite { key: key.clone(), task, created_at, is_other });
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
        self.send(&change.messages);
        self.writes.logs.extend(change.logs.iter().cloned());
        self.writes.journal.extend(change.journal.iter().cloned());
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

    /// What becomes of the rows that the change names. What was handed out last is known of the act until its task ends.
    fn write_waits(&mut self, change: &TaskChange) -> BTreeMap<i64, WaitWrite> {
        let id = change.task.id;
        let write = |(wakeup, waiting): (Wakeup, Option<&Waiting>)| {
            let code = wakeup_code(wakeup);
            let row = self.found.waits.entry((id, code)).or_default();
            let keeps_claim =
                row.claim.is_some() && waiting.is_some() && change.keeps_claim(wakeup, row.attempt);
            row.claim = row.claim.filter(|_| keeps_claim);
            let write = match waiting {
                Some(waiting) => {
                    (row.attempt, row.is_ready) = (waiting.attempt, waiting.ready.is_some());
                    let before = match (row.is_stored, keeps_claim) {
                        (false, _) => WaitBefore::Absent,
                        (true, false) => WaitBefore::Unclaimed,
                        (true, true) => WaitBefore::Claimed,
                    };
                    WaitWrite::Put { waiting: waiting.clone(), before }
                }
                None => forget(change, wakeup, row),
            };
            (code, write)
        };
        change.waits_after().into_iter().map(write).collect()
    }

    fn write_alarm(&mut self, change: &AlarmChange) {
        let Some(alarm) = &change.alarm else { return };
        let version = change.before + 1;
        let was_there = self.found.alarms.insert(alarm.id.clone(), version).is_some();
        let entry = self.writes.alarms.entry(alarm.id.clone());
        let write = entry.or_insert_with(|| (alarm.clone(), version, was_there));
        (write.0, write.1) = (alarm.clone(), version);
    }

    fn write_lock(&mut self, change: &LockChange) {
        let name = &change.lock.name;
        self.send(&change.messages);
        if let Some(place) = change.left {
            self.writes.lock_waiters.insert((name.clone(), place), None);
        }
        if let Some((place, waiter)) = change.joined {
            self.writes.lock_waiters.insert((name.clone(), place), Some(waiter));
        }
        let was_there = self.found.locks.contains_key(name);
        let write = self.writes.locks.entry(name.clone()).or_insert((None, was_there));
        if change.kept {
            write.0 = Some(change.lock.clone());
            self.found.locks.insert(name.clone(), FoundLock::of(&change.lock));
        } else {
            write.0 = None;
            self.found.locks.remove(name);
            self.found.lock_floor = self.found.lock_floor.max(change.lock.version);
            self.writes.lock_floor = Some(self.found.lock_floor);
        }
    }

    fn write_record(&mut self, change: &RecordChange) {
        let key = (change.kind, change.name.clone());
        let before = match &change.body {
            Some(_) => self.found.records.insert(key.clone(), change.version),
            None => self.found.records.remove(&key),
        };
        let write = self.writes.records.entry(key).or_insert((None, before.is_some()));
        write.0 = change.record();
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

/// What becomes of a row by which nothing is waited for any more. A parked attempt that was handed out is still known as such.
fn forget(change: &TaskChange, wakeup: Wakeup, row: &FoundWait) -> WaitWrite {
    let Wakeup::Act(key) = wakeup else { return WaitWrite::Delete };
    match row.handed_out.filter(|attempt| change.task.has_current(key, *attempt)) {
        Some(attempt) => WaitWrite::Rest { attempt },
        None => WaitWrite::Delete,
    }
}
