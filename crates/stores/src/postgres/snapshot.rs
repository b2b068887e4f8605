//! A database as it was at one moment, for exports: all that is read comes by one connection, out of one transaction.

use async_trait::async_trait;
use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{TaskId, Timestamp, Wakeup};
use windlass_store::{Announced, KeyChange, RowSnapshot, Snapshot, Store, StoreError, Submitted};

use super::{
    connection::Database,
    error::Fault,
    open::{OpenError, PostgresOptions, open, snapshot},
    store::PostgresStore,
};
use crate::rows::{ENQUEUED, from_integer, submit_key, to_integer, wakeup};

const SUBMITTED: &str = "SELECT t.id, k.scope, k.fingerprint
    FROM windlass_task t LEFT JOIN windlass_submit_key k ON k.scope = t.scope AND NOT k.orphan
    WHERE t.id > $1 ORDER BY t.id LIMIT $2";
const UNANNOUNCED: &str = "SELECT task, after, last FROM windlass_outbox
    WHERE task = ANY($1::uuid[]) ORDER BY task, after";
const OTHER_KEYS: &str = "SELECT scope, fingerprint, task, created_at FROM windlass_submit_key
    WHERE orphan AND scope > $1 ORDER BY scope LIMIT $2";

const WAITS: &str = "SELECT task, act FROM windlass_wait
    WHERE task > $1 AND ($2::uuid IS NULL OR task <= $2) ORDER BY task, act";

/// A database as it was when this was opened.
pub struct PostgresSnapshot {
    store: PostgresStore,
}

impl PostgresSnapshot {
    /// Opens a database, brings its tables to today's version, and holds on to what is in it at this moment. Must be
    /// called on a Tokio runtime.
    ///
    /// # Errors
    /// When it cannot be reached, does not let us in, takes no writes, or has tables of a newer version.
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let token_key = open(options).await?.token_key;
        let store = PostgresStore::reading(snapshot(options)?, token_key);
        // The moment is now, and not that of whatever is read first.
        let begun = enqueued(store.database()).await;
        begun.map_err(|fault| OpenError::Snapshot(fault.to_string()))?;
        Ok(Self { store })
    }
}

#[async_trait]
impl Snapshot for PostgresSnapshot {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn submitted(&mut self, after: Option<u128>, limit: usize) -> Result<Vec<Submitted>, StoreError> {
        Ok(submitted(self.store.database(), after, limit).await?)
    }

    async fn unannounced(&mut self, tasks: &[TaskId]) -> Result<Vec<(Announced, u64)>, StoreError> {
        Ok(unannounced(self.store.database(), tasks).await?)
    }

    async fn other_keys(
        &mut self,
        after: Option<[u8; 32]>,
        limit: usize,
    ) -> Result<Vec<KeyChange>, StoreError> {
        Ok(other_keys(self.store.database(), after, limit).await?)
    }

    async fn enqueued(&mut self) -> Result<u64, StoreError> {
        Ok(enqueued(self.store.database()).await?)
    }
}

#[async_trait]
impl RowSnapshot for PostgresSnapshot {
    async fn waits(
        &mut self,
        after: Option<TaskId>,
        last: Option<TaskId>,
    ) -> Result<Vec<(TaskId, Wakeup)>, StoreError> {
        Ok(waits(self.store.database(), after, last).await?)
    }
}

async fn waits(
    database: &Database,
    after: Option<TaskId>,
    last: Option<TaskId>,
) -> Result<Vec<(TaskId, Wakeup)>, Fault> {
    let (after, last) = (Uuid::from_u128(after.map_or(0, |id| id.0)), last.map(|id| Uuid::from_u128(id.0)));
    let rows = database.connection().await?.query(WAITS, &[&after, &last]).await?;
    let read = |row: &Row| Ok((TaskId(row.try_get::<_, Uuid>(0)?.as_u128()), wakeup(row.try_get(1)?)));
    rows.iter().map(read).collect()
}

async fn submitted(database: &Database, after: Option<u128>, limit: usize) -> Result<Vec<Submitted>, Fault> {
    let (after, limit) = (Uuid::from_u128(after.unwrap_or(0)), to_integer(limit as u64));
    let rows = database.connection().await?.query(SUBMITTED, &[&after, &limit]).await?;
    let mut submitted = Vec::with_capacity(rows.len());
    for row in &rows {
        let id = row.try_get::<_, Uuid>(0)?.as_u128();
        let scope: Option<&[u8]> = row.try_get(1)?;
        let key = scope.zip(row.try_get(2)?);
        let key = key.map(|(scope, fingerprint)| submit_key(scope, fingerprint)).transpose()?;
        submitted.push(Submitted { place: id, id: TaskId(id), key });
    }
    Ok(submitted)
}

async fn unannounced(database: &Database, tasks: &[TaskId]) -> Result<Vec<(Announced, u64)>, Fault> {
    let ids: Vec<Uuid> = tasks.iter().map(|id| Uuid::from_u128(id.0)).collect();
    let rows = database.connection().await?.query(UNANNOUNCED, &[&ids]).await?;
    let read = |row: &Row| {
        let task = TaskId(row.try_get::<_, Uuid>(0)?.as_u128());
        let (after, last) = (from_integer(row.try_get(1)?), from_integer(row.try_get(2)?));
        Ok((Announced { task, after }, last.saturating_sub(after)))
    };
    rows.iter().map(read).collect()
}

async fn other_keys(
    database: &Database,
    after: Option<[u8; 32]>,
    limit: usize,
) -> Result<Vec<KeyChange>, Fault> {
    let after = after.map_or_else(Vec::new, |scope| scope.to_vec());
    let rows = database.connection().await?.query(OTHER_KEYS, &[&after, &to_integer(limit as u64)]).await?;
    let mut keys = Vec::with_capacity(rows.len());
    for row in &rows {
        keys.push(KeyChange {
            key: submit_key(row.try_get(0)?, row.try_get(1)?)?,
            task: TaskId(row.try_get::<_, Uuid>(2)?.as_u128()),
            at: Timestamp(row.try_get(3)?),
        });
    }
    Ok(keys)
}

async fn enqueued(database: &Database) -> Result<u64, Fault> {
    let rows = database.connection().await?.query(ENQUEUED, &[]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map_or(0, from_integer))
}
