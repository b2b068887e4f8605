//! What the rule for commits sees of a resident store: what is staged, and what was read of the disk where nothing is.

use std::{collections::BTreeMap, sync::Arc};

use windlass_core::{
    ActKey, AlarmId, Flow, LockHolder, LockName, Millis, Name, Task, TaskId, is_adhoc,
    planted::{Bug, is_planted},
};

use super::{Resident, scheduler::Scheduler};
use crate::{
    port::{Change, MessageId, RecordKind, SessionId, StoreError, TaskChange, UniqueKey},
    rules::{ClaimView, Holder, RowView},
};

/// What the disk has of changes that are to be staged, as far as it is not in memory. It holds as long as the
/// [`Reading`](super::waking::Reading) under which it was read.
#[derive(Debug, Default)]
pub(super) struct OnDisk {
    /// Tasks that idempotency keys name, with the fingerprints of what was submitted.
    submitted: BTreeMap<[u8; 32], (TaskId, [u8; 32])>,
    /// Versions of alarms.
    alarms: BTreeMap<AlarmId, u64>,
    /// The newest tasks of unique keys, without parameters and results.
    firsts: BTreeMap<UniqueKey, Arc<Task>>,
}

impl Resident {
    /// Reads what the disk has of `changes`.
    pub(super) async fn look_up(&self, changes: &[Change]) -> Result<OnDisk, StoreError> {
        let (mut scopes, mut alarms, mut unique) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            scopes.extend(change.submit_key().map(|key| key.scope));
            match change {
                Change::Task(change) => unique.extend(change.unique()),
                Change::Alarm(change) => alarms.extend(change.alarm.as_ref().map(|alarm| &alarm.id)),
                _ => {}
            }
        }
        let mut found = OnDisk::default();
        if !scopes.is_empty() && !is_planted(Bug::SubmitKeyForgotten) {
            let keys = self.sink.submit_keys(&scopes).await?.into_iter().flatten();
            found.submitted = keys.map(|(task, key)| (key.scope, (task, key.fingerprint))).collect();
        }
        for id in alarms {
            let version = self.sink.alarm(id).await?.map(|stored| (id.clone(), stored.version));
            found.alarms.extend(version);
        }
        if !unique.is_empty() {
            let ids = self.sink.unique_tasks(&unique).await?;
            let (keys, ids): (Vec<UniqueKey>, Vec<TaskId>) =
                unique.into_iter().zip(ids).filter_map(|(key, id)| Some((key, id?))).unzip();
            let firsts = keys.into_iter().zip(self.heads(&ids).await?);
            found.firsts = firsts.filter_map(|(key, loaded)| Some((key, loaded?.task))).collect();
        }
        Ok(found)
    }
}

/// What is staged, over what was read of the disk.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) scheduler: &'a Scheduler,
    pub(super) on_disk: &'a OnDisk,
}

impl RowView for View<'_> {
    fn submitted(&self, scope: &[u8; 32]) -> Option<(TaskId, [u8; 32])> {
        let staged = self.scheduler.submit_keys.get(scope);
        staged.or_else(|| self.on_disk.submitted.get(scope)).copied()
    }

    fn task_version(&self, id: TaskId) -> u64 {
        self.scheduler.active.get(&id).map_or(0, |entry| entry.task.state.events)
    }

    fn lock_version(&self, name: &LockName) -> u64 {
        self.scheduler.locks.get(name).map_or(self.scheduler.lock_floor, |lock| lock.version)
    }

    fn lock_holder(&self, name: &LockName) -> Option<LockHolder> {
        self.scheduler.locks.get(name)?.holder
    }

    fn alarm_version(&self, id: &AlarmId) -> u64 {
        let staged = self.scheduler.alarms.get(id);
        staged.or_else(|| self.on_disk.alarms.get(id)).copied().unwrap_or(0)
    }

    fn record_version(&self, kind: RecordKind, name: &Name) -> u64 {
        self.scheduler.records.get(&(kind, name.clone())).map_or(0, |record| record.version)
    }

    fn flow_version(&self, name: &Name) -> u32 {
        let versions = self.scheduler.flows.get(name);
        versions.and_then(|versions| versions.last()).map_or(0, |newest| newest.flow.version)
    }

    fn has_message(&self, message: &MessageId) -> bool {
        let Scheduler { messages, staged_messages, .. } = self.scheduler;
        messages.contains_key(message) || staged_messages.contains_key(message)
    }

    fn generation(&self) -> Option<u64> {
        Some(self.scheduler.generation)
    }

    /// A flow that was read may not have reached the disk. One that a task brings along comes with it.
    fn has_flow(&self, flow: &Arc<Flow>) -> bool {
        let stored = self.scheduler.flow(&flow.name, Some(flow.version)).map(|stored| stored.flow);
        stored.is_some_and(|stored| Arc::ptr_eq(&stored, flow) || stored == *flow)
            || is_adhoc(flow.name.as_str())
    }
}

impl ClaimView for View<'_> {
    fn holder(&self, task: TaskId, key: ActKey) -> Option<Holder> {
        let held = self.scheduler.claims.get(task, key)?;
        Some(Holder { attempt: held.attempt, claim: held.number, session: held.session })
    }

    fn handed_out(&self, change: &TaskChange) -> impl Iterator<Item = (ActKey, u32)> {
        // Looked up once: this is asked for each change.
        let entry = self.scheduler.active.get(&change.task.id);
        entry.filter(|entry| !entry.handed_out.is_empty()).into_iter().flat_map(|entry| {
            let keys = change.acts().filter(|key| entry.handed_out.contains(key));
            keys.filter_map(|key| Some((key, entry.task.act(key)?.attempt)))
        })
    }

    fn is_over(&self, session: SessionId, at: Millis) -> bool {
        self.scheduler.sessions.is_over(session, at)
    }

    fn first(&self, key: &UniqueKey) -> Option<(&Task, bool)> {
        let on_disk = self.on_disk.firsts.get(key).map(|task| &**task);
        let id = self.scheduler.unique.get(key).copied().or_else(|| on_disk.map(|task| task.id))?;
        let in_memory = self.scheduler.active.get(&id).map(|entry| &*entry.task);
        let first = in_memory.or_else(|| on_disk.filter(|task| task.id == id))?;
        Some((first, self.scheduler.claims.any(id)))
    }
}
