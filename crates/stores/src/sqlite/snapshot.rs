//! A file as it is while no server can open it: what an export reads.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use rusqlite::{Connection, params};
use windlass_core::{TaskId, Timestamp};
use windlass_store::{Announced, KeyChange, Snapshot, Store, StoreError, SubmitKey, Submitted};

use super::{
    connect::{Role, connect},
    encoding::{from_integer, task_id, to_integer},
    error::describe,
    open::OpenError,
};

const SUBMITTED: &str = "SELECT t.n, t.id, k.scope, k.fingerprint
    FROM task t LEFT JOIN submit_key k ON k.scope = t.scope AND k.orphan = 0
    WHERE t.n > ?1 ORDER BY t.n LIMIT ?2";
pub(super) const UNANNOUNCED: &str = "SELECT o.after, h.count FROM outbox o JOIN history h ON h.seq = o.seq
    WHERE o.id = ?1 ORDER BY o.after";
const OTHER_KEYS: &str = "SELECT scope, fingerprint, task, created_at FROM submit_key
    WHERE orphan = 1 AND scope > ?1 ORDER BY scope LIMIT ?2";

/// An open store with its file. It has the file's lock, so nothing changes it meanwhile.
pub struct SqliteSnapshot {
    store: Arc<dyn Store>,
    connection: Connection,
}

impl SqliteSnapshot {
    /// The file of a store that was opened and is left alone from now on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new(store: Arc<dyn Store>, path: &Path) -> Result<Self, OpenError> {
        let connection = connect(path, Role::Reader).map_err(|error| OpenError::sqlite(path, &error))?;
        Ok(Self { store, connection })
    }
}

fn fault(error: rusqlite::Error) -> StoreError {
    StoreError::Unavailable(describe(&error))
}

#[async_trait]
impl Snapshot for SqliteSnapshot {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn submitted(&mut self, after: Option<u128>, limit: usize) -> Result<Vec<Submitted>, StoreError> {
        let after = i64::try_from(after.unwrap_or(0)).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(SUBMITTED).map_err(fault)?;
        let read = |row: &rusqlite::Row<'_>| {
            let place: i64 = row.get(0)?;
            let (scope, fingerprint): (Option<[u8; 32]>, Option<[u8; 32]>) = (row.get(2)?, row.get(3)?);
            let key = scope.zip(fingerprint).map(|(scope, fingerprint)| SubmitKey { scope, fingerprint });
            Ok(Submitted { place: u128::from(place.unsigned_abs()), id: task_id(row, 1)?, key })
        };
        let rows = statement.query_map(params![after, to_integer(limit as u64)], read).map_err(fault)?;
        rows.collect::<Result<_, _>>().map_err(fault)
    }

    async fn unannounced(&mut self, tasks: &[TaskId]) -> Result<Vec<(Announced, u64)>, StoreError> {
        let mut statement = self.connection.prepare_cached(UNANNOUNCED).map_err(fault)?;
        let mut found = Vec::new();
        for task in tasks {
            let read = |row: &rusqlite::Row<'_>| {
                let after = from_integer(row.get(0)?);
                Ok((Announced { task: *task, after }, from_integer(row.get(1)?)))
            };
            let rows = statement.query_map([task.to_bytes()], read).map_err(fault)?;
            for row in rows {
                found.push(row.map_err(fault)?);
            }
        }
        Ok(found)
    }

    async fn other_keys(
        &mut self,
        after: Option<[u8; 32]>,
        limit: usize,
    ) -> Result<Vec<KeyChange>, StoreError> {
        let after = after.map_or_else(Vec::new, |scope| scope.to_vec());
        let mut statement = self.connection.prepare_cached(OTHER_KEYS).map_err(fault)?;
        let read = |row: &rusqlite::Row<'_>| {
            let key = SubmitKey { scope: row.get(0)?, fingerprint: row.get(1)? };
            Ok(KeyChange { key, task: task_id(row, 2)?, at: Timestamp(row.get(3)?) })
        };
        let rows = statement.query_map(params![after, to_integer(limit as u64)], read).map_err(fault)?;
        rows.collect::<Result<_, _>>().map_err(fault)
    }

    async fn enqueued(&mut self) -> Result<u64, StoreError> {
        Ok(0)
    }
}
