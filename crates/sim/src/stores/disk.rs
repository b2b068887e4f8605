//! The disk of a resident store: rows that survive the server, reached through a device that may fail.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::{Alarm, AlarmId, Event, TaskId, Timestamp};
use windlass_engine::{
    memory::MemorySink,
    ports::{LogLine, Now, Page, Retention, StoreError, StoredAlarm, SubmitKey, TaskQuery},
    resident::{Batch, Line, LinePlace, Recovered, RowSink, TaskRow, WakePlace, Written as Told},
};

use crate::world::{Device, Fate, Operation, Written};

/// A disk with the rows of a store.
pub(crate) struct Disk {
    pub(crate) rows: MemorySink,
    pub(crate) device: Device,
    pub(crate) written: Written,
}

#[async_trait]
impl RowSink for Disk {
    async fn recover(&self) -> Result<Recovered, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.device.mend();
        self.rows.recover().await
    }

    fn write(&self, batch: Arc<Batch>, told: Told) {
        let (rows, written) = (self.rows.clone(), self.written.clone());
        self.device.submit(Operation::Write, move |fate| match fate {
            Fate::Failed(error) => told(Err(error)),
            Fate::Done | Fate::DoneUntold(_) => {
                let told_of = batch.clone();
                rows.write(
                    batch,
                    Box::new(move |result| {
                        match &result {
                            Ok(()) => told_of.changes.iter().for_each(|change| written.add(change)),
                            Err(error) => written.refuse(error),
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

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<TaskRow>>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.load(ids).await
    }

    async fn resting_page(&self, before: TaskId, limit: usize) -> Result<Vec<TaskRow>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.resting_page(before, limit).await
    }

    async fn line_page(
        &self,
        line: &Line,
        after: LinePlace,
        limit: usize,
    ) -> Result<Vec<(LinePlace, TaskRow)>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.line_page(line, after, limit).await
    }

    async fn line_count(&self, line: &Line, after: LinePlace, before: LinePlace) -> Result<u64, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.line_count(line, after, before).await
    }

    async fn waking(
        &self,
        after: WakePlace,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(WakePlace, TaskRow)>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.waking(after, until, limit).await
    }

    async fn ended_page(&self, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.ended_page(query).await
    }

    async fn submit_keys(&self, scopes: &[[u8; 32]]) -> Result<Vec<Option<(TaskId, SubmitKey)>>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.submit_keys(scopes).await
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.events(task, after, limit).await
    }

    async fn logs(&self, task: TaskId, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.logs(task, skip, limit).await
    }

    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.alarm(id).await
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        self.device.wait(Operation::Read).await?;
        self.rows.alarms(all, limit).await
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        self.device.wait(Operation::There).await?;
        self.rows.sweep(retention, now, limit).await
    }
}
