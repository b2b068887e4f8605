//! Rows in memory while no server has them open: what an export reads.

use async_trait::async_trait;
use windlass_core::TaskId;

use super::sink::MemorySink;
use crate::{
    port::{Announced, KeyChange, Now, Snapshot, Store, StoreError, SubmitKey, Submitted},
    resident::Resident,
};

/// The rows of a resident store, which nobody changes meanwhile.
pub struct MemorySnapshot {
    store: Resident,
    sink: MemorySink,
    /// The tasks, those submitted first before others.
    tasks: Vec<TaskId>,
}

impl MemorySnapshot {
    /// Opens the rows.
    ///
    /// # Errors
    /// When they cannot be understood.
    pub async fn open(sink: &MemorySink, now: Now) -> Result<Self, StoreError> {
        let store = Resident::open(std::sync::Arc::new(sink.clone()), now).await?;
        Ok(Self { store, sink: sink.clone(), tasks: sink.read(|tables| tables.submitted()) })
    }
}

#[async_trait]
impl Snapshot for MemorySnapshot {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn submitted(&mut self, after: Option<u128>, limit: usize) -> Result<Vec<Submitted>, StoreError> {
        let behind = usize::try_from(after.unwrap_or(0)).unwrap_or(usize::MAX);
        let tasks = (1..).zip(&self.tasks).skip(behind).take(limit);
        let submitted = |(place, id): (u128, &TaskId)| {
            let key = self.sink.read(|tables| tables.submit_key_of(*id));
            Submitted { place, id: *id, key }
        };
        Ok(tasks.map(submitted).collect())
    }

    async fn unannounced(&mut self, tasks: &[TaskId]) -> Result<Vec<(Announced, u64)>, StoreError> {
        Ok(self.sink.read(|tables| tasks.iter().flat_map(|task| tables.unannounced_of(*task)).collect()))
    }

    async fn other_keys(
        &mut self,
        after: Option<[u8; 32]>,
        limit: usize,
    ) -> Result<Vec<KeyChange>, StoreError> {
        Ok(self.sink.read(|tables| tables.other_keys(after, limit)))
    }

    async fn enqueued(&mut self) -> Result<u64, StoreError> {
        Ok(0)
    }
}

impl super::tables::Tables {
    /// The tasks, those submitted first before others.
    fn submitted(&self) -> Vec<TaskId> {
        let mut tasks: Vec<_> = self.tasks().map(|task| (task.input.created_at, task.id)).collect();
        tasks.sort_unstable();
        tasks.into_iter().map(|(_, id)| id).collect()
    }

    fn submit_key_of(&self, task: TaskId) -> Option<SubmitKey> {
        self.keys().find(|(change, is_other)| change.task == task && !is_other).map(|(change, _)| change.key)
    }

    /// Keys that stay by themselves, by their scopes.
    fn other_keys(&self, after: Option<[u8; 32]>, limit: usize) -> Vec<KeyChange> {
        let is_alone = |change: &KeyChange, is_other| is_other || self.task(change.task).is_none();
        let alone = self.keys().filter(|(change, is_other)| is_alone(change, *is_other));
        let above = alone.map(|(change, _)| change).filter(|change| Some(change.key.scope) > after);
        above.take(limit).collect()
    }
}
