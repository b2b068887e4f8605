//! A sink in front of another sink: it passes every call on, except those that it overrides.

use std::{future::Future, sync::Arc};

use async_trait::async_trait;
use windlass_core::{Alarm, AlarmId, Event, Name, TaskId, Timestamp};

use crate::{
    port::{
        DamagedTask, JournalEntry, JournalQuery, JournalSize, LogLine, Now, Page, Retention, SizeQuery,
        StoreError, StoredAlarm, SubmitKey, TaskQuery, Unannounced, UniqueKey,
    },
    resident::{Batch, Line, LinePlace, Params, ReadTask, Recovered, Room, RowSink, WakePlace, Written},
};

/// A sink in front of another one, between it and a resident store. Simulated disks and recorders are such sinks.
pub trait Front: Send + Sync + 'static {
    /// The sink behind it.
    fn behind(&self) -> &dyn RowSink;

    /// As [`RowSink::recover`].
    fn recover(&self, room: Room) -> impl Future<Output = Result<Recovered, StoreError>> + Send {
        self.behind().recover(room)
    }

    /// As [`RowSink::write`].
    fn write(&self, batch: Arc<Batch>, written: Written) {
        self.behind().write(batch, written);
    }

    /// For everything that only reads; `read` does it.
    fn read<T: Send>(
        &self,
        read: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        read
    }

    /// As [`RowSink::sweep`].
    fn sweep(
        &self,
        retention: &Retention,
        now: Now,
        limit: usize,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async move { self.behind().sweep(retention, now, limit).await }
    }
}

#[async_trait]
impl<F: Front> RowSink for F {
    async fn recover(&self, room: Room) -> Result<Recovered, StoreError> {
        Front::recover(self, room).await
    }

    fn write(&self, batch: Arc<Batch>, written: Written) {
        Front::write(self, batch, written);
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, StoreError> {
        self.read(self.behind().load(ids)).await
    }

    async fn load_active(&self, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, StoreError> {
        self.read(self.behind().load_active(ids)).await
    }

    async fn ended_page(&self, query: &TaskQuery) -> Result<Page<ReadTask, TaskId>, StoreError> {
        self.read(self.behind().ended_page(query)).await
    }

    async fn resting_page(
        &self,
        before: TaskId,
        limit: usize,
        params: Params,
    ) -> Result<Vec<ReadTask>, StoreError> {
        self.read(self.behind().resting_page(before, limit, params)).await
    }

    async fn line_page(
        &self,
        line: &Line,
        after: LinePlace,
        limit: usize,
        room: Room,
    ) -> Result<Vec<(LinePlace, ReadTask)>, StoreError> {
        self.read(self.behind().line_page(line, after, limit, room)).await
    }

    async fn line_count(&self, line: &Line, after: LinePlace, before: LinePlace) -> Result<u64, StoreError> {
        self.read(self.behind().line_count(line, after, before)).await
    }

    async fn waking(
        &self,
        after: WakePlace,
        until: Timestamp,
        limit: usize,
        room: Room,
    ) -> Result<Vec<(WakePlace, ReadTask)>, StoreError> {
        self.read(self.behind().waking(after, until, limit, room)).await
    }

    async fn submit_keys(&self, scopes: &[[u8; 32]]) -> Result<Vec<Option<(TaskId, SubmitKey)>>, StoreError> {
        self.read(self.behind().submit_keys(scopes)).await
    }

    async fn unique_tasks(&self, keys: &[UniqueKey]) -> Result<Vec<Option<TaskId>>, StoreError> {
        self.read(self.behind().unique_tasks(keys)).await
    }

    async fn have_tasks(&self, flows: &[Name]) -> Result<Vec<bool>, StoreError> {
        self.read(self.behind().have_tasks(flows)).await
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        self.read(self.behind().events(task, after, limit)).await
    }

    async fn unannounced(
        &self,
        above: TaskId,
        limit: usize,
    ) -> Result<Vec<Result<Unannounced, DamagedTask>>, StoreError> {
        self.read(self.behind().unannounced(above, limit)).await
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        self.read(self.behind().logs(task, after, limit)).await
    }

    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError> {
        self.read(self.behind().journal(query)).await
    }

    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError> {
        self.read(self.behind().journal_sizes(query)).await
    }

    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError> {
        self.read(self.behind().alarm(id)).await
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Result<Alarm, DamagedTask>>, StoreError> {
        self.read(self.behind().alarms(all, limit)).await
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        Front::sweep(self, retention, now, limit).await
    }
}
