//! The way to a database past its servers, for exports and imports.

use async_trait::async_trait;
use mysql_async::{Conn, prelude::Queryable as _};
use windlass_store::{Archive, ImportStage, SERVER_SILENT_AFTER, StoreError};

use super::{
    commit::NOW,
    migrate::{READABLE_FROM, VERSION},
    open::{MySqlOptions, OpenError},
};
use crate::rows::{ENQUEUED, FILLED, mark_of, stage_of};

/// Locks are known to the whole server, so the database is part of the name.
const LOCK: &str = "concat('windlass.import.', md5(database()))";

/// What only this product has beside the tables that are filled.
const STATES: &str = "windlass_state";

/// A connection past the servers of a database.
pub struct MySqlArchive {
    conn: Conn,
}

impl MySqlArchive {
    /// Opens a database to look at it.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn to_look(options: &MySqlOptions) -> Result<Self, OpenError> {
        Ok(Self { conn: options.connect().await? })
    }

    /// Opens a database to fill it, which one at a time may do.
    ///
    /// # Errors
    /// When it cannot be reached, another one is filling it, or its tables are of a newer version.
    pub async fn to_fill(options: &MySqlOptions) -> Result<Self, OpenError> {
        let mut archive = Self::to_look(options).await?;
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

#[async_trait]
impl Archive for MySqlArchive {
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
        self.conn.query_drop("UPDATE windlass_lock_floor SET version = 0").await.map_err(fault)
    }
}
