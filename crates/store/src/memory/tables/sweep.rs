//! Deleting what is kept too long.

use std::collections::BTreeSet;

use windlass_core::{AlarmState, Millis, Name, Task, TaskId, Timestamp, is_adhoc};

use super::Tables;
use crate::port::{Retention, StoredAlarm};

/// Submit keys are kept as long as their task, and at least this long.
const SUBMIT_KEYS_KEPT_MIN: Millis = Millis::from_secs(24 * 3600);

impl Tables {
    /// Deletes at most `limit` log lines, tasks, alarms and submit keys that are kept too long; resolved alarms go
    /// with their tasks, or later where they were resolved later. Returns how many were deleted, and which tasks.
    pub(in crate::memory) fn sweep(
        &mut self,
        retention: &Retention,
        now: Timestamp,
        limit: usize,
    ) -> (usize, BTreeSet<TaskId>) {
        let is_old = |at: Timestamp, kept: Millis| at + kept <= now;
        let mut room = limit;
        for lines in self.logs.values_mut() {
            lines.retain(|(_, line)| {
                let goes = room > 0 && is_old(line.at, retention.logs);
                room -= usize::from(goes);
                !goes
            });
        }
        self.logs.retain(|_, lines| !lines.is_empty());
        room -= self.records.sweep(retention, now, room);
        let ended = |task: &Task| task.is_ended().then_some(task.state.ended_at).flatten();
        let kept = |task: &Task| task.flow.retention.unwrap_or(retention.tasks);
        // A child that succeeded may have to roll back, as long as the topmost of those above it has not ended.
        let is_needed = |task: &Task| {
            let top = task.kept_for().and_then(|top| self.tasks.get(&top));
            top.is_some_and(|top| !top.is_ended())
        };
        let old = self.tasks.values().filter(|task| ended(task).is_some_and(|at| is_old(at, kept(task))));
        let is_kept = |task: &Task| retention.keeps_unannounced && self.is_unannounced(task.id);
        let old = old.filter(|task| !is_needed(task) && !is_kept(task));
        let old: BTreeSet<TaskId> = old.map(|task| task.id).take(room).collect();
        room -= old.len();
        self.unique.retain(|_, task| !old.contains(task));
        self.outbox.retain(|named, _| !old.contains(&named.task));
        for id in &old {
            self.tasks.remove(id);
            self.events.remove(id);
            self.logs.remove(id);
        }
        self.alarms.retain(|_, StoredAlarm { alarm, .. }| {
            alarm.state != AlarmState::Resolved || !old.contains(&alarm.task)
        });
        let tasks = &self.tasks;
        self.alarms.retain(|_, StoredAlarm { alarm, .. }| {
            let goes = room > 0
                && alarm.state == AlarmState::Resolved
                && !tasks.contains_key(&alarm.task)
                && is_old(alarm.raised_at, retention.tasks);
            room -= usize::from(goes);
            !goes
        });
        self.submit_keys.retain(|_, row| {
            let is_free = row.is_other || !tasks.contains_key(&row.task);
            let goes = room > 0 && is_free && is_old(row.accepted_at, SUBMIT_KEYS_KEPT_MIN);
            room -= usize::from(goes);
            !goes
        });
        (limit - room, old)
    }

    /// Deletes at most `limit` flows that came with tasks and have none any more. Returns how many were deleted.
    pub(in crate::memory) fn sweep_flows(&mut self, limit: usize) -> usize {
        let used: BTreeSet<&Name> = self.tasks.values().map(|task| &task.flow.name).collect();
        let unused = self.flows.keys().filter(|name| is_adhoc(name.as_str()) && !used.contains(name));
        let unused: Vec<Name> = unused.take(limit).cloned().collect();
        self.flows.retain(|name, _| !unused.contains(name));
        unused.len()
    }
}
