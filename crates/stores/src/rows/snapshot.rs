//! A database as of one moment, for exports: all reads use one connection and one transaction.

use async_trait::async_trait;
use windlass_core::{TaskId, Timestamp, Wakeup};
use windlass_store::{Announced, KeyChange, RowSnapshot, Snapshot, Store, StoreError, Submitted};

use super::{Columns as _, Database as _, Dialect, Fault, Link, RowStore, from_integer, submit_key, wakeup};

/// Statements that only exports need.
pub(crate) trait SnapshotSql: Link {
    /// Tasks above `after`, in order, with their idempotency keys: `id, scope, fingerprint`.
    fn submitted(after: u128, limit: usize) -> Self::Script<'static>;

    /// The outbox of these tasks, in order: `task, after, last`.
    fn outbox(tasks: &[TaskId]) -> Self::Script<'_>;

    /// Idempotency keys above `after` that are not those of a task, in order: `scope, fingerprint, task, created_at`.
    fn other_keys(after: Vec<u8>, limit: usize) -> Self::Script<'static>;

    /// The number of enqueued tasks.
    fn enqueued() -> Self::Script<'static>;

    /// Waits of tasks above `after`, and up to `last`, in order: `task, act`.
    fn waits(after: TaskId, last: Option<TaskId>) -> Self::Script<'static>;
}

/// A database as it was when this was opened.
pub struct DatabaseSnapshot<D: Dialect> {
    store: RowStore<D>,
}

impl<D: Dialect> DatabaseSnapshot<D> {
    /// Takes the snapshot: its moment is now, and not that of the first query.
    pub(crate) async fn take(store: RowStore<D>) -> Result<Self, StoreError> {
        let mut snapshot = Self { store };
        Snapshot::enqueued(&mut snapshot).await?;
        Ok(snapshot)
    }

    async fn rows(&self, script: D::Script<'_>) -> Result<Vec<D::Row>, StoreError> {
        Ok(self.store.database().connection().await?.rows(script).await?)
    }
}

#[async_trait]
impl<D: Dialect> Snapshot for DatabaseSnapshot<D> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn submitted(&mut self, after: Option<u128>, limit: usize) -> Result<Vec<Submitted>, StoreError> {
        let rows = self.rows(D::submitted(after.unwrap_or(0), limit)).await?;
        let read = |row: &D::Row| -> Result<Submitted, Fault> {
            let id = row.task(0)?;
            let key = row.optional_bytes(1)?.zip(row.optional_bytes(2)?);
            let key = key.map(|(scope, fingerprint)| submit_key(scope, fingerprint)).transpose()?;
            Ok(Submitted { place: id.0, id, key })
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    async fn unannounced(&mut self, tasks: &[TaskId]) -> Result<Vec<(Announced, u64)>, StoreError> {
        let rows = self.rows(D::outbox(tasks)).await?;
        let read = |row: &D::Row| -> Result<(Announced, u64), Fault> {
            let (after, last) = (from_integer(row.number(1)?), from_integer(row.number(2)?));
            Ok((Announced { task: row.task(0)?, after }, last.saturating_sub(after)))
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    async fn other_keys(
        &mut self,
        after: Option<[u8; 32]>,
        limit: usize,
    ) -> Result<Vec<KeyChange>, StoreError> {
        let after = after.map_or_else(Vec::new, |scope| scope.to_vec());
        let rows = self.rows(D::other_keys(after, limit)).await?;
        let read = |row: &D::Row| -> Result<KeyChange, Fault> {
            let key = submit_key(row.bytes(0)?, row.bytes(1)?)?;
            Ok(KeyChange { key, task: row.task(2)?, at: Timestamp(row.number(3)?) })
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    async fn enqueued(&mut self) -> Result<u64, StoreError> {
        let rows = self.rows(D::enqueued()).await?;
        Ok(rows.first().map(|row| row.number(0)).transpose()?.map_or(0, from_integer))
    }
}

#[async_trait]
impl<D: Dialect> RowSnapshot for DatabaseSnapshot<D> {
    async fn waits(
        &mut self,
        after: Option<TaskId>,
        last: Option<TaskId>,
    ) -> Result<Vec<(TaskId, Wakeup)>, StoreError> {
        let rows = self.rows(D::waits(after.unwrap_or(TaskId(0)), last)).await?;
        let read = |row: &D::Row| -> Result<_, Fault> { Ok((row.task(0)?, wakeup(row.number(1)?))) };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }
}
