//! Tasks that applications enqueue in transactions of their own, in the database that the servers share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use windlass_core::TaskId;
use windlass_store::{Enqueued, EnqueuedTasks, Settlement, Standing, StoreError};

use crate::world::{Device, Operation};

/// The rows, of which a clone is a handle.
#[derive(Clone, Default)]
pub(crate) struct EnqueuedRows(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// By their places.
    rows: BTreeMap<u64, Enqueued>,
    places: u64,
    settled: BTreeMap<TaskId, Settlement>,
}

impl EnqueuedRows {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction that enqueues a task is committed.
    pub(crate) fn enqueue(&self, id: TaskId, task: String) {
        let mut inner = self.inner();
        inner.places += 1;
        let place = inner.places;
        inner.rows.insert(place, Enqueued { place, id, by: "app".into(), task: task.into(), refusals: 0 });
    }

    /// Whether no task waits to be accepted.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner().rows.is_empty()
    }

    /// What became of each task that does not wait any more.
    pub(crate) fn settled(&self) -> Vec<(TaskId, Settlement)> {
        self.inner().settled.iter().map(|(id, settlement)| (*id, settlement.clone())).collect()
    }
}

/// A server's way to the rows.
pub(crate) struct EnqueuedThere {
    pub(crate) rows: EnqueuedRows,
    pub(crate) device: Device,
}

#[async_trait]
impl EnqueuedTasks for EnqueuedThere {
    async fn waiting(&self, limit: usize, after: u64) -> Result<Vec<Enqueued>, StoreError> {
        self.device.wait(Operation::Read).await?;
        let found =
            self.rows.inner().rows.range(after + 1..).take(limit).map(|(_, row)| row.clone()).collect();
        self.device.wait(Operation::Back).await?;
        Ok(found)
    }

    async fn settle(&self, settled: Vec<(TaskId, Settlement)>) -> Result<usize, StoreError> {
        self.device.wait(Operation::There).await?;
        let count = settled.len();
        {
            let mut inner = self.rows.inner();
            for (id, settlement) in settled {
                inner.rows.retain(|_, row| row.id != id);
                inner.settled.insert(id, settlement);
            }
        }
        self.device.wait(Operation::Back).await?;
        Ok(count)
    }

    async fn standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError> {
        self.device.wait(Operation::Read).await?;
        let inner = self.rows.inner();
        if inner.rows.values().any(|row| row.id == id) {
            return Ok(Some(Standing::Waits));
        }
        Ok(inner.settled.get(&id).and_then(|settlement| match settlement {
            Settlement::Accepted => None,
            Settlement::StandsFor(task) => Some(Standing::StandsFor(*task)),
            Settlement::Refused(why) => Some(Standing::Refused(why.clone())),
        }))
    }

    async fn arrival(&self) {
        // Nobody says so here: the enqueue importer looks from time to time.
        std::future::pending().await
    }
}
