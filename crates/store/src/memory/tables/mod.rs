//! The rows a database would have: everything that outlives a server.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    Alarm, AlarmId, AlarmState, Event, Lock, LockHolder, LockName, Name, Task, TaskId, Timestamp, is_adhoc,
    planted::{Bug, is_planted},
};

use crate::{
    port::{
        AlarmChange, Announced, Change, Envelope, KeyChange, Limit, LimitChange, LockChange, LogLine,
        MessageId, Outcome, Page, QueueChange, QueuePause, RecordKind, SCAN_MAX, StoredAlarm, StoredFlow,
        SubmitKey, TaskChange, TaskQuery, UniqueKey,
    },
    resident::{Line, LinePlace, Rest, WakePlace},
    rules::{RowView, fits},
};

mod outbox;
mod records;
mod resting;
mod sweep;

use records::Records;

/// Everything that outlives a server.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Every task with its results.
    tasks: BTreeMap<TaskId, Arc<Task>>,
    /// Those of them that rest in a resident store.
    resting: BTreeMap<TaskId, Rest>,
    /// Those that rest and are to be woken, in this order.
    wakes: BTreeSet<WakePlace>,
    /// Those that rest in lines, in their order, and the limits of lines.
    lines: BTreeMap<Line, (LinePlace, BTreeSet<LinePlace>)>,
    events: BTreeMap<TaskId, Vec<Event>>,
    submit_keys: BTreeMap<[u8; 32], SubmitKeyRow>,
    /// The newest task of each key.
    unique: BTreeMap<UniqueKey, TaskId>,
    messages: BTreeMap<MessageId, Envelope>,
    locks: BTreeMap<LockName, Lock>,
    /// No deleted lock had a higher version.
    lock_floor: u64,
    alarms: BTreeMap<AlarmId, StoredAlarm>,
    /// All versions of each flow, oldest first.
    flows: BTreeMap<Name, Vec<StoredFlow>>,
    paused: BTreeMap<Name, QueuePause>,
    limits: BTreeMap<Name, Limit>,
    records: Records,
    /// What is to be announced: how many events each has.
    outbox: BTreeMap<Announced, u64>,
    logs: BTreeMap<TaskId, Vec<(u64, LogLine)>>,
    /// How many lines were written, those included that are deleted.
    logged: u64,
    latest_at: Timestamp,
}

#[derive(Debug)]
struct SubmitKeyRow {
    task: TaskId,
    key: SubmitKey,
    accepted_at: Timestamp,
    /// It was submitted with another task, for which this one stands.
    is_other: bool,
}

impl Tables {
    /// Writes a change that a resident store has decided. Returns its outcome if it does not fit.
    pub(super) fn refuses(&mut self, change: &Change) -> Option<Outcome> {
        let outcome = fits(change, self);
        if outcome == Outcome::Committed {
            self.write(change);
        }
        Some(outcome).filter(|outcome| *outcome != Outcome::Committed)
    }

    /// The same for a change that was staged before. The sweep may have deleted the row of a resolved alarm meanwhile; the
    /// change brings it back.
    pub(super) fn refuses_staged(&mut self, change: &Change) -> Option<Outcome> {
        match change {
            Change::Alarm(AlarmChange { alarm: Some(alarm), .. }) if !self.alarms.contains_key(&alarm.id) => {
                self.write(change);
                None
            }
            change => self.refuses(change),
        }
    }

    /// Writes a change that fits.
    pub(super) fn write(&mut self, change: &Change) {
        match change {
            Change::Task(change) => self.write_task(change),
            Change::Alarm(change) => self.write_alarm(change),
            Change::Lock(change) => self.write_lock(change),
            Change::Consume(message) => drop(self.messages.remove(message)),
            Change::Flow(stored) => {
                self.saw(stored.created_at);
                self.flows.entry(stored.flow.name.clone()).or_default().push(stored.clone());
            }
            Change::Queue(QueueChange { name, paused: Some(pause) }) => {
                self.saw(pause.at);
                self.paused.insert(name.clone(), pause.clone());
            }
            Change::Queue(QueueChange { name, paused: None }) => {
                self.paused.remove(name);
            }
            Change::Limit(LimitChange { name, limit: Some(limit) }) => {
                self.limits.insert(name.clone(), limit.clone());
            }
            Change::Limit(LimitChange { name, limit: None }) => {
                self.limits.remove(name);
            }
            Change::Key(change) => {
                self.saw(change.at);
                self.write_key(&change.key, change.task, change.at, true);
            }
            Change::Record(change) => self.records.write(change),
            Change::Journal(entries) => {
                entries.iter().for_each(|entry| self.saw(entry.at));
                self.records.append(entries);
            }
            Change::Audit(entry) => {
                self.saw(entry.at);
                self.records.append(std::slice::from_ref(entry));
            }
            Change::Logs(lines) => self.write_logs(lines),
            Change::Announced(announced) => self.forget_announced(announced),
            Change::Probe => {}
        }
    }

    fn write_logs(&mut self, lines: &[LogLine]) {
        for line in lines {
            self.saw(line.at);
            self.logged += 1;
            self.logs.entry(line.task).or_default().push((self.logged, line.clone()));
        }
    }

    fn write_task(&mut self, change: &TaskChange) {
        let id = change.task.id;
        self.saw(change.task.input.created_at);
        for event in &change.events {
            self.saw(event.at);
        }
        self.tasks.insert(id, change.task.clone());
        self.events.entry(id).or_default().extend(change.events.iter().cloned());
        self.keep_unannounced(change);
        self.write_logs(&change.logs);
        self.records.append(&change.journal);
        if let Some(message) = &change.consumes {
            self.messages.remove(message);
        }
        self.send(&change.messages);
        if let Some(key) = &change.submit_key {
            self.write_key(key, id, change.task.input.created_at, false);
        }
        self.unique.extend(change.unique().map(|key| (key, id)));
        if change.before == 0 {
            self.bring_along(&change.task);
        }
    }

    fn write_key(&mut self, key: &SubmitKey, task: TaskId, accepted_at: Timestamp, is_other: bool) {
        let row = SubmitKeyRow { task, key: key.clone(), accepted_at, is_other };
        self.submit_keys.insert(key.scope, row);
    }

    /// A task that brought its flow along has it, also where the flow went with the last task before this one.
    fn bring_along(&mut self, task: &Task) {
        let (flow, created_at) = (&task.flow, task.input.created_at);
        if is_adhoc(flow.name.as_str()) && !self.flows.contains_key(&flow.name) {
            let stored = StoredFlow { flow: flow.clone(), created_at };
            self.flows.insert(flow.name.clone(), vec![stored]);
        }
    }

    /// Whether there are tasks of a flow.
    pub(super) fn has_tasks(&self, flow: &Name) -> bool {
        self.tasks.values().any(|task| task.flow.name == *flow)
    }

    /// Deletes a flow.
    pub(super) fn delete_flow(&mut self, flow: &Name) {
        self.flows.remove(flow);
    }

    fn send(&mut self, messages: &[Envelope]) {
        for envelope in messages {
            self.messages.insert(envelope.id.clone(), envelope.clone());
        }
    }

    fn write_lock(&mut self, change: &LockChange) {
        self.saw(change.at);
        if let Some(message) = &change.consumes {
            self.messages.remove(message);
        }
        self.send(&change.messages);
        if change.kept {
            self.locks.insert(change.lock.name.clone(), change.lock.clone());
        } else {
            self.locks.remove(&change.lock.name);
            if !is_planted(Bug::LockFloorForgotten) {
                self.lock_floor = self.lock_floor.max(change.lock.version);
            }
        }
    }

    fn write_alarm(&mut self, change: &AlarmChange) {
        if let Some(message) = &change.consumes {
            self.messages.remove(message);
        }
        if let Some(alarm) = &change.alarm {
            self.saw(alarm.raised_at);
            let stored = StoredAlarm { alarm: alarm.clone(), version: change.before + 1 };
            self.alarms.insert(alarm.id.clone(), stored);
        }
    }

    fn saw(&mut self, at: Timestamp) {
        self.latest_at = self.latest_at.max(at);
    }

    /// The latest time written.
    pub(super) fn latest_at(&self) -> Timestamp {
        self.latest_at
    }

    pub(super) fn task(&self, id: TaskId) -> Option<&Arc<Task>> {
        self.tasks.get(&id)
    }

    /// Looks through tasks, newest first, for a page of those that `pick` takes.
    pub(super) fn page<T>(
        &self,
        query: &TaskQuery,
        pick: impl Fn(&Arc<Task>) -> Option<T>,
    ) -> Page<T, TaskId> {
        let newest = query.before.unwrap_or(TaskId(u128::MAX));
        let mut items = Vec::new();
        let mut last = None;
        for (looked_at, (id, task)) in self.tasks.range(..newest).rev().enumerate() {
            if items.len() >= query.limit || looked_at == SCAN_MAX {
                return Page { items, next: last };
            }
            items.extend(pick(task));
            last = Some(*id);
        }
        Page { items, next: None }
    }

    /// The task submitted under a key.
    pub(super) fn submit_key(&self, scope: &[u8; 32]) -> Option<(TaskId, SubmitKey)> {
        self.submit_keys.get(scope).map(|row| (row.task, row.key.clone()))
    }

    /// All idempotency keys by their scopes, and whether each was submitted with another task.
    pub(super) fn keys(&self) -> impl Iterator<Item = (KeyChange, bool)> {
        self.submit_keys.values().map(|row| {
            let change = KeyChange { key: row.key.clone(), task: row.task, at: row.accepted_at };
            (change, row.is_other)
        })
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.tasks.values()
    }

    /// The newest task with a key.
    pub(super) fn unique_task(&self, key: &UniqueKey) -> Option<TaskId> {
        self.unique.get(key).copied()
    }

    pub(super) fn events(&self, task: TaskId, after: u64, limit: usize) -> Vec<(u64, Event)> {
        let events = self.events.get(&task).into_iter().flatten();
        let skip = usize::try_from(after).unwrap_or(usize::MAX);
        (1..).zip(events.cloned()).skip(skip).take(limit).collect()
    }

    pub(super) fn logs(&self, task: TaskId, after: u64, limit: usize) -> Vec<(u64, LogLine)> {
        let lines = self.logs.get(&task).map(Vec::as_slice).unwrap_or_default();
        let first = lines.partition_point(|(number, _)| *number <= after);
        lines[first..].iter().take(limit).cloned().collect()
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Envelope> {
        self.messages.values()
    }

    /// No deleted lock had a higher version.
    pub(super) fn lock_floor(&self) -> u64 {
        self.lock_floor
    }

    /// All locks that are stored, free ones too, by name.
    pub(super) fn locks(&self) -> &BTreeMap<LockName, Lock> {
        &self.locks
    }

    pub(super) fn alarm(&self, id: &AlarmId) -> Option<&StoredAlarm> {
        self.alarms.get(id)
    }

    /// Alarms, those raised last first.
    pub(super) fn alarms(&self, all: bool, limit: usize) -> Vec<Alarm> {
        let wanted = |alarm: &&Alarm| all || alarm.state != AlarmState::Resolved;
        let mut alarms: Vec<&Alarm> =
            self.alarms.values().map(|stored| &stored.alarm).filter(wanted).collect();
        alarms.sort_by_key(|alarm| std::cmp::Reverse(alarm.raised_at));
        alarms.into_iter().take(limit).cloned().collect()
    }

    pub(super) fn flow(&self, name: &str, version: Option<u32>) -> Option<&StoredFlow> {
        let versions = self.flows.get(name)?;
        match version {
            None => versions.last(),
            Some(version) => versions.get(usize::try_from(version).ok()?.checked_sub(1)?),
        }
    }

    /// All versions of each flow, oldest first, by name.
    pub(super) fn flows(&self) -> impl Iterator<Item = &Vec<StoredFlow>> {
        self.flows.values()
    }

    /// The queues that are paused.
    pub(super) fn paused(&self) -> &BTreeMap<Name, QueuePause> {
        &self.paused
    }

    /// Records and journals.
    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    /// Limits, by name.
    pub(super) fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.limits.values()
    }
}

impl RowView for Tables {
    fn submitted(&self, scope: &[u8; 32]) -> Option<(TaskId, [u8; 32])> {
        self.submit_keys.get(scope).map(|row| (row.task, row.key.fingerprint))
    }

    fn task_version(&self, id: TaskId) -> u64 {
        self.tasks.get(&id).map_or(0, |task| task.state.events)
    }

    fn lock_version(&self, name: &LockName) -> u64 {
        self.locks.get(name).map_or(self.lock_floor, |lock| lock.version)
    }

    fn lock_holder(&self, name: &LockName) -> Option<LockHolder> {
        self.locks.get(name)?.holder
    }

    fn alarm_version(&self, id: &AlarmId) -> u64 {
        self.alarms.get(id).map_or(0, |stored| stored.version)
    }

    fn record_version(&self, kind: RecordKind, name: &Name) -> u64 {
        self.records.get(kind, name).map_or(0, |record| record.version)
    }

    fn flow_version(&self, name: &Name) -> u32 {
        self.flows.get(name).and_then(|versions| versions.last()).map_or(0, |newest| newest.flow.version)
    }

    fn has_message(&self, message: &MessageId) -> bool {
        self.messages.contains_key(message)
    }
}
