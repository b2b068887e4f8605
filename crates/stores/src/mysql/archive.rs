//! The way to a database past its servers, for exports and imports.

use async_trait::async_trait;
use mysql_async::{Conn, params, prelude::Queryable as _};
use windlass_core::{TaskId, Timestamp};
use windlass_engine::ports::{Archive, ImportStage, KeyChange, SERVER_SILENT_AFTER, StoreError, Submitted};

use super::{
    commit::NOW,
    migrate::{READABLE_FROM, VERSION},
    open::{MySqlOptions, OpenError},
};
use crate::rows::{ENQUEUED, FILLED, mark_of, stage_of, submit_key};

/// Locks are known to the whole server, so the database is part of the name.
const LOCK: &str = "concat('windlass.import.', md5(database()))";

/// What only this product has beside the tables that are filled.
const STATES: &str = "windlass_state";

type KeyRow = (Vec<u8>, Vec<u8>, Vec<u8>, i64);

/// A connection past the servers of a database.
pub struct MySqlArchive {
    conn: Conn,
}

impl MySqlArchive {
    /// Opens a database to read it.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn to_read(options: &MySqlOptions) -> Result<Self, OpenError> {
        Ok(Self { conn: options.connect().await? })
    }

    /// Opens a database to fill it, which one at a time may do.
    ///
    /// # Errors
    /// When it cannot be reached, another one is filling it, or its tables are of a newer version.
    pub async fn to_fill(options: &MySqlOptions) -> Result<Self, OpenError> {
        let mut archive = Self::to_read(options).await?;
        let failed = |error: mysql_async::Error| OpenError::migration(&error);
        let locked: Option<Option<i64>> =
            archive.conn.query_first(format!("SELECT get_lock({LOCK}, 0)")).await.map_err(failed)?;
        if locked.flatten() != Some(1) {
            return Err(OpenError::Importing);
        }
        if archive.has_tables().await.map_err(failed)? {
            let found = "SELECT schema_version FROM windlass_meta";
            let found: i64 = archive.conn.query_first(found).await.map_err(failed)?.unwrap_or(0);
            if found > VERSION {
                // From which version on it is readable may be covered by the mark of an import.
                return Err(OpenError::Newer { found, readable_from: found, known: VERSION });
            }
        }
        Ok(archive)
    }

    async fn has_tables(&mut self) -> Result<bool, mysql_async::Error> {
        let known = "SELECT 1 FROM information_schema.tables
            WHERE table_schema = database() AND table_name = 'windlass_meta'";
        let known: Option<i64> = self.conn.query_first(known).await?;
        Ok(known.is_some())
    }
}

fn fault(error: mysql_async::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

fn task_id(bytes: &[u8]) -> Result<TaskId, StoreError> {
    let bytes = bytes.try_into().map_err(|_| StoreError::Damaged("a task's id has not 16 bytes".to_owned()));
    Ok(TaskId::from_bytes(bytes?))
}

#[async_trait]
impl Archive for MySqlArchive {
    async fn submitted(&mut self, after: Option<u128>, limit: usize) -> Result<Vec<Submitted>, StoreError> {
        let sql = "SELECT t.id, k.scope, k.fingerprint
            FROM windlass_task t LEFT JOIN windlass_submit_key k ON k.scope = t.scope AND coalesce(k.orphan, 0) = 0
            WHERE t.id > :after ORDER BY t.id LIMIT :limit";
        let after = after.unwrap_or(0).to_be_bytes().to_vec();
        let parameters = params! { "after" => after, "limit" => limit as u64 };
        let rows: Vec<(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)> =
            self.conn.exec(sql, parameters).await.map_err(fault)?;
        let mut submitted = Vec::with_capacity(rows.len());
        for (id, scope, fingerprint) in rows {
            let id = task_id(&id)?;
            let key = scope.zip(fingerprint);
            let key = key.map(|(scope, fingerprint)| submit_key(&scope, &fingerprint)).transpose()?;
            submitted.push(Submitted { place: id.0, id, key });
        }
        Ok(submitted)
    }

    async fn other_keys(
        &mut self,
        after: Option<[u8; 32]>,
        limit: usize,
    ) -> Result<Vec<KeyChange>, StoreError> {
        let sql = "SELECT scope, fingerprint, task, created_at FROM windlass_submit_key
            WHERE orphan = 1 AND scope > :after ORDER BY scope LIMIT :limit";
        let after = after.map_or_else(Vec::new, |scope| scope.to_vec());
        let parameters = params! { "after" => after, "limit" => limit as u64 };
        let rows: Vec<KeyRow> = self.conn.exec(sql, parameters).await.map_err(fault)?;
        let mut keys = Vec::with_capacity(rows.len());
        for (scope, fingerprint, task, created_at) in rows {
            let key = submit_key(&scope, &fingerprint)?;
            keys.push(KeyChange { key, task: task_id(&task)?, at: Timestamp(created_at) });
        }
        Ok(keys)
    }

    async fn enqueued(&mut self) -> Result<u64, StoreError> {
        let count: Option<u64> = self.conn.query_first(ENQUEUED).await.map_err(fault)?;
        Ok(count.unwrap_or(0))
    }

    async fn is_empty(&mut self) -> Result<bool, StoreError> {
        for table in FILLED {
            let sql = format!("SELECT 1 FROM {table} LIMIT 1");
            let row: Option<i64> = self.conn.query_first(sql).await.map_err(fault)?;
            if row.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn server(&mut self) -> Result<Option<String>, StoreError> {
        // Servers go by the clock of the database.
        let sql = format!(
            "SELECT address FROM windlass_server WHERE heard + {} > {NOW} ORDER BY started_at, id LIMIT 1",
            SERVER_SILENT_AFTER.0
        );
        self.conn.query_first(sql).await.map_err(fault)
    }

    async fn stage(&mut self) -> Result<ImportStage, StoreError> {
        if !self.has_tables().await.map_err(fault)? {
            return Ok(ImportStage::None);
        }
        let sql = "SELECT readable_from FROM windlass_meta";
        let readable_from: Option<i64> = self.conn.query_first(sql).await.map_err(fault)?;
        Ok(stage_of(readable_from))
    }

    async fn set_stage(&mut self, stage: ImportStage) -> Result<(), StoreError> {
        let sql = format!("UPDATE windlass_meta SET readable_from = {}", mark_of(stage, READABLE_FROM));
        self.conn.query_drop(sql).await.map_err(fault)
    }

    async fn clear(&mut self) -> Result<(), StoreError> {
        for table in FILLED.iter().chain([&STATES]) {
            self.conn.query_drop(format!("DELETE FROM {table}")).await.map_err(fault)?;
        }
        Ok(())
    }
}
