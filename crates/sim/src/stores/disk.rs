//! The disk of a resident store: rows that survive the server, behind a device that may fail.

use std::sync::Arc;

use windlass_store::{
    Now, Retention, StoreError,
    memory::MemorySink,
    resident::{Batch, Front, Recovered, Room, RowSink, Written as Told},
};

use crate::world::{Device, Entry, Fate, Journal, Operation};

/// A disk with the rows of a store.
pub(crate) struct Disk {
    pub(crate) rows: MemorySink,
    pub(crate) device: Device,
    pub(crate) journal: Journal,
}

impl Front for Disk {
    fn behind(&self) -> &dyn RowSink {
        &self.rows
    }

    async fn recover(&self, room: Room) -> Result<Recovered, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.device.mend();
        let recovered = self.rows.recover(room).await;
        self.journal.add(Entry::Recovered);
        recovered
    }

    fn write(&self, batch: Arc<Batch>, told: Told) {
        let (rows, journal) = (self.rows.clone(), self.journal.clone());
        journal.add(Entry::Staged(batch.clone()));
        let operation = if writes_nothing(&batch) { Operation::Flush } else { Operation::Write };
        self.device.submit(operation, move |fate| match fate {
            Fate::Failed(error) => told(Err(error)),
            Fate::Done | Fate::DoneUntold(_) => {
                let told_of = batch.clone();
                rows.write(
                    batch,
                    Box::new(move |result| {
                        match &result {
                            Ok(()) => told_of.changes.iter().for_each(|change| journal.written(change)),
                            Err(error) => journal.add(Entry::Refused(error.clone())),
                        }
                        told(match fate {
                            Fate::DoneUntold(error) => Err(error),
                            _ => result,
                        });
                    }),
                );
            }
        });
    }

    async fn read<T: Send>(
        &self,
        read: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.device.wait(Operation::Read).await?;
        let found = read.await;
        // The result is out of date when it is used.
        self.device.wait(Operation::Back).await?;
        found
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        self.device.wait(Operation::There).await?;
        self.rows.sweep(retention, now, limit).await
    }
}

/// Whether a batch only waits for those before it.
fn writes_nothing(batch: &Batch) -> bool {
    let Batch { changes, resting, limits, unused_flows, claims } = batch;
    changes.is_empty()
        && resting.is_empty()
        && limits.is_empty()
        && unused_flows.is_empty()
        && claims.is_empty()
}
