//! A database as it was at one moment, for exports: all that is read comes by one connection, out of one transaction.

use async_trait::async_trait;
use mysql_async::Row;
use windlass_core::{TaskId, Timestamp, Wakeup};
use windlass_store::{Announced, KeyChange, RowSnapshot, Snapshot, Store, StoreError, Submitted};

use super::{
    columns::Columns as _,
    connection::{Database, Sets},
    error::Fault,
    open::{MySqlOptions, OpenError, Opened, open},
    script::{Cell, Script, cells},
    store::MySqlStore,
};
use crate::rows::{ENQUEUED, from_integer, submit_key, to_integer, wakeup};

const SUBMITTED: &str = "SELECT t.id, k.scope, k.fingerprint
    FROM windlass_task t LEFT JOIN windlass_submit_key k ON k.scope = t.scope AND coalesce(k.orphan, 0) = 0
    WHERE t.id > ? ORDER BY t.id LIMIT ?";
const OTHER_KEYS: &str = "SELECT scope, fingerprint, task, created_at FROM windlass_submit_key
    WHERE orphan = 1 AND scope > ? ORDER BY scope LIMIT ?";

const WAITS: &str = "SELECT task, act FROM windlass_wait
    WHERE task > ? AND task <= coalesce(?, repeat(x'ff', 16)) ORDER BY task, act";

/// A database as it was when this was opened.
pub struct MySqlSnapshot {
    store: MySqlStore,
}

impl MySqlSnapshot {
    /// Opens a database, brings its tables to today's version, and holds on to what is in it at this moment. Must be
    /// called on a Tokio runtime.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub async fn open(options: &MySqlOptions) -> Result<Self, OpenError> {
        let Opened { database, token_key } = open(options).await?;
        let store = MySqlStore::reading(database.snapshot(), token_key);
        // The moment is now, and not that of whatever is read first.
        let begun = read(store.database(), "SELECT 1", Vec::new()).await;
        begun.map_err(|fault| OpenError::Snapshot(fault.to_string()))?;
        Ok(Self { store })
    }
}

#[async_trait]
impl Snapshot for MySqlSnapshot {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn submitted(&mut self, after: Option<u128>, limit: usize) -> Result<Vec<Submitted>, StoreError> {
        let after = after.unwrap_or(0).to_be_bytes().to_vec();
        let sets = read(self.store.database(), SUBMITTED, cells![after, to_integer(limit as u64)]).await?;
        Ok(submitted(sets)?)
    }

    async fn unannounced(&mut self, tasks: &[TaskId]) -> Result<Vec<(Announced, u64)>, StoreError> {
        let mut script = Script::default();
        let keys = tasks.iter().map(|task| Cell::from(*task));
        script.for_keys(
            "SELECT task, after, last FROM windlass_outbox WHERE task",
            keys,
            "ORDER BY task, after",
        );
        let read = |row: &Row| {
            let (after, last) = (from_integer(row.number(1)?), from_integer(row.number(2)?));
            Ok((Announced { task: row.task(0)?, after }, last.saturating_sub(after)))
        };
        let sets = run(self.store.database(), script).await?;
        Ok(sets.iter().flatten().map(read).collect::<Result<_, Fault>>()?)
    }

    async fn other_keys(
        &mut self,
        after: Option<[u8; 32]>,
        limit: usize,
    ) -> Result<Vec<KeyChange>, StoreError> {
        let after = after.map_or_else(Vec::new, |scope| scope.to_vec());
        let sets = read(self.store.database(), OTHER_KEYS, cells![after, to_integer(limit as u64)]).await?;
        Ok(other_keys(sets)?)
    }

    async fn enqueued(&mut self) -> Result<u64, StoreError> {
        let sets = read(self.store.database(), ENQUEUED, Vec::new()).await?;
        let count = sets.iter().flatten().next().map(|row| row.number(0)).transpose()?;
        Ok(count.map_or(0, from_integer))
    }
}

#[async_trait]
impl RowSnapshot for MySqlSnapshot {
    async fn waits(
        &mut self,
        after: Option<TaskId>,
        last: Option<TaskId>,
    ) -> Result<Vec<(TaskId, Wakeup)>, StoreError> {
        let cells = cells![after.unwrap_or(TaskId(0)), last];
        let sets = read(self.store.database(), WAITS, cells).await?;
        let read = |row: &Row| Ok((row.task(0)?, wakeup(row.number(1)?)));
        Ok(sets.iter().flatten().map(read).collect::<Result<_, Fault>>()?)
    }
}

async fn read(database: &Database, sql: &str, cells: Vec<Cell<'_>>) -> Result<Sets, Fault> {
    let mut script = Script::default();
    script.add(sql, cells);
    run(database, script).await
}

async fn run(database: &Database, script: Script) -> Result<Sets, Fault> {
    database.within(async { database.connection().await?.run(script).await }).await
}

fn submitted(sets: Sets) -> Result<Vec<Submitted>, Fault> {
    let mut submitted = Vec::new();
    for row in sets.iter().flatten() {
        let id = row.task(0)?;
        let key = row.optional_bytes(1)?.zip(row.optional_bytes(2)?);
        let key = key.map(|(scope, fingerprint)| submit_key(scope, fingerprint)).transpose()?;
        submitted.push(Submitted { place: id.0, id, key });
    }
    Ok(submitted)
}

fn other_keys(sets: Sets) -> Result<Vec<KeyChange>, Fault> {
    let mut keys = Vec::new();
    for row in sets.iter().flatten() {
        let key = submit_key(row.bytes(0)?, row.bytes(1)?)?;
        keys.push(KeyChange { key, task: row.task(2)?, at: Timestamp(row.number(3)?) });
    }
    Ok(keys)
}
