//! Unique tasks: finding those that stand for what is submitted.
//!
//! The disk knows the newest task of each key. Only one commit at a time looks there and stages what is based on it, so
//! what comes between is known: keys that are on their way to the disk are in memory until they are there.

use std::collections::BTreeMap;

use futures_util::lock::MutexGuard;
use windlass_core::{
    TaskId,
    planted::{Bug, is_planted},
};

use super::{Resident, scheduler::Scheduler, waking::Reading};
use crate::port::{Change, Loaded, Outcome, StoreError, TaskChange, UniqueKey};

/// The newest tasks with the keys of some changes. What they are stays so until this is dropped, as far as they are
/// not in memory, and nobody else takes one in.
#[derive(Default)]
pub(super) struct Firsts<'s> {
    tasks: BTreeMap<UniqueKey, Loaded>,
    /// Those that were on their way to the disk, and may have got there since.
    staged: BTreeMap<UniqueKey, TaskId>,
    _only: Option<MutexGuard<'s, ()>>,
    _reading: Option<Reading<'s>>,
}

impl Resident {
    /// Finds the newest tasks with the keys of `changes`.
    pub(super) async fn firsts(&self, changes: &[Change]) -> Result<Firsts<'_>, StoreError> {
        let mut keys: Vec<UniqueKey> = changes.iter().filter_map(unique).collect();
        if keys.is_empty() {
            return Ok(Firsts::default());
        }
        keys.sort_unstable();
        keys.dedup();
        let only = self.taking_in_unique.lock().await;
        let reading = self.begin_read();
        let staged: BTreeMap<UniqueKey, TaskId> = {
            let inner = self.inner();
            let unique = &inner.scheduler.unique;
            keys.iter().filter_map(|key| Some((key.clone(), *unique.get(key)?))).collect()
        };
        keys.retain(|key| !staged.contains_key(key));
        let found = self.sink.unique_tasks(&keys).await?;
        let (keys, ids): (Vec<UniqueKey>, Vec<TaskId>) =
            keys.into_iter().zip(found).filter_map(|(key, id)| Some((key, id?))).unzip();
        let loaded = self.heads(&ids).await?;
        let tasks = keys.into_iter().zip(loaded).filter_map(|(key, loaded)| Some((key, loaded?))).collect();
        Ok(Firsts { tasks, staged, _only: Some(only), _reading: Some(reading) })
    }
}

impl Scheduler {
    /// What becomes of a new task for which another one stands.
    pub(super) fn repeated(&self, change: &Change, firsts: &Firsts<'_>) -> Option<Outcome> {
        let Change::Task(change) = change else { return None };
        let key = change.unique()?;
        // What its idempotency key names comes first: it may be another task, or another submit.
        if let Some(taken) = self.taken(change.submit_key.as_ref()) {
            return Some(taken);
        }
        let found = firsts.tasks.get(&key).map(|loaded| &*loaded.task);
        let staged = self.unique.get(&key).or_else(|| firsts.staged.get(&key)).copied();
        let task = staged.or_else(|| found.map(|task| task.id))?;
        let first = self.active.get(&task).map(|entry| &*entry.task).or(found)?;
        let is_held = self.claims.any(task, |_, _| true);
        change.is_stood_for_by(first, is_held).then_some(Outcome::Repeats { task })
    }

    /// A new task is staged: it is the newest with its key.
    pub(super) fn stage_unique(&mut self, change: &TaskChange) {
        if let Some(key) = change.unique().filter(|_| !is_planted(Bug::UniqueOverlooked)) {
            self.unique.insert(key, change.task.id);
        }
    }

    /// A new task is on disk.
    pub(super) fn settle_unique(&mut self, change: &TaskChange) {
        if let Some(key) = change.unique()
            && self.unique.get(&key) == Some(&change.task.id)
        {
            self.unique.remove(&key);
        }
    }
}

fn unique(change: &Change) -> Option<UniqueKey> {
    match change {
        Change::Task(change) => change.unique(),
        _ => None,
    }
}
