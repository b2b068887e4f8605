//! Reads the tasks of attempts.

use std::collections::BTreeMap;

use windlass_core::TaskId;
use windlass_store::{AttemptId, Claimed, Loaded, StoreError};

use crate::Engine;

impl Engine {
    /// The tasks of these attempts, each task once: many attempts may belong to one task, as the items of an `each`
    /// step do.
    pub(crate) async fn tasks_of(
        &self,
        attempts: &[AttemptId],
    ) -> Result<BTreeMap<TaskId, Loaded>, StoreError> {
        let ids = ids_of(attempts);
        Ok(by_id(&ids, self.store.load(&ids).await?))
    }

    /// As [`Engine::tasks_of`], but parameters and results may be missing.
    pub(crate) async fn heads_of(
        &self,
        attempts: &[AttemptId],
    ) -> Result<BTreeMap<TaskId, Loaded>, StoreError> {
        let ids = ids_of(attempts);
        Ok(by_id(&ids, self.store.load_heads(&ids).await?))
    }

    /// The tasks of attempts that were claimed just now; tasks in the task cache are not read.
    pub(crate) async fn tasks_of_claimed(
        &self,
        claimed: &[Claimed],
    ) -> Result<BTreeMap<TaskId, Loaded>, StoreError> {
        let (mut tasks, mut unknown) = (BTreeMap::new(), Vec::new());
        for claimed in claimed {
            match self.task_cache.claimed(claimed) {
                Some(loaded) => drop(tasks.insert(claimed.id.task, loaded)),
                None => unknown.push(claimed.id),
            }
        }
        if !unknown.is_empty() {
            // A cached state that lacks one attempt is out of date for the others of its task, too.
            unknown.iter().for_each(|id| drop(tasks.remove(&id.task)));
            let connected = self.task_cache.connected();
            let read = self.tasks_of(&unknown).await?;
            read.values().for_each(|loaded| self.task_cache.learn(loaded, connected));
            tasks.extend(read);
        }
        Ok(tasks)
    }
}

/// The tasks of attempts, each once.
fn ids_of(attempts: &[AttemptId]) -> Vec<TaskId> {
    let mut ids: Vec<TaskId> = attempts.iter().map(|id| id.task).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The tasks that were found, by their ids.
fn by_id(ids: &[TaskId], loaded: Vec<Option<Loaded>>) -> BTreeMap<TaskId, Loaded> {
    ids.iter().zip(loaded).filter_map(|(id, loaded)| Some((*id, loaded?))).collect()
}
