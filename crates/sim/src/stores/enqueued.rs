//! Tasks that applications enqueue in their own transactions, in the database that the servers share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use windlass_core::TaskId;
use windlass_store::{
    Enqueued, EnqueuedTasks, Leadership, Settlement, Standing, StoreError, memory::SharedStore,
};

use crate::world::{Device, Entry, Journal, Operation};

/// The rows. A clone is another handle of them.
#[derive(Clone, Default)]
pub(crate) struct EnqueuedRows(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// By position.
    rows: BTreeMap<u64, Enqueued>,
    places: u64,
    settled: BTreeMap<TaskId, Settlement>,
}

impl EnqueuedRows {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a transaction that enqueues a task.
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

    /// The results of the tasks that no longer wait.
    pub(crate) fn settled(&self) -> Vec<(TaskId, Settlement)> {
        self.inner().settled.iter().map(|(id, settlement)| (*id, settlement.clone())).collect()
    }
}

/// A server's connection to the rows.
pub(crate) struct EnqueuedThere {
    pub(crate) rows: EnqueuedRows,
    pub(crate) device: Device,
    /// The other tables of the same database.
    pub(crate) others: SharedStore,
    pub(crate) journal: Journal,
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

    async fn settle(
        &self,
        settled: Vec<(TaskId, Settlement)>,
        led: Option<Leadership>,
    ) -> Result<usize, StoreError> {
        self.device.wait(Operation::There).await?;
        if let Err(lost) = self.others.check(led) {
            self.journal.add(Entry::Deposed);
            return Err(lost);
        }
        self.journal.add(led.map_or(Entry::Unled("an enqueued task is settled"), Entry::Led));
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
        // There are no notifications here: the enqueue importer polls from time to time.
        std::future::pending().await
    }
}
