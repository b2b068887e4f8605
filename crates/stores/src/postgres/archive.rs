//! The way to a database past its servers, for exports and imports.

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use windlass_store::{Archive, ImportStage, SERVER_SILENT_AFTER, StoreError};

use super::{
    error::describe,
    migrate::{LOCK_IMPORT, READABLE_FROM, VERSION},
    open::{OpenError, PostgresOptions},
};
use crate::rows::{ENQUEUED, FILLED, from_integer, mark_of, stage_of, to_integer};

const MADE_BY: &str = "SELECT schema_version FROM windlass_meta";
const MARK: &str = "SELECT readable_from FROM windlass_meta";
/// Servers go by the clock of the database.
const UP: &str = "SELECT address FROM windlass_server
    WHERE heard + $1 > floor(extract(epoch FROM clock_timestamp()) * 1000)::int8 ORDER BY started_at, id LIMIT 1";

/// A connection past the servers of a database.
pub struct PostgresArchive {
    client: Client,
    /// It ends with its client.
    _driver: JoinHandle<Result<(), tokio_postgres::Error>>,
}

impl PostgresArchive {
    /// Opens a database to look at it.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn to_look(options: &PostgresOptions) -> Result<Self, OpenError> {
        let (client, connection) = options.connect().await?;
        Ok(Self { client, _driver: tokio::spawn(connection) })
    }

    /// Opens a database to fill it, which one at a time may do.
    ///
    /// # Errors
    /// When it cannot be reached, another one is filling it, or its tables are of a newer version.
    pub async fn to_fill(options: &PostgresOptions) -> Result<Self, OpenError> {
        let archive = Self::to_look(options).await?;
        let failed = |error: tokio_postgres::Error| OpenError::migration(&error);
        let locked = archive.client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK_IMPORT]).await;
        if !locked.and_then(|row| row.try_get::<_, bool>(0)).map_err(failed)? {
            return Err(OpenError::Importing);
        }
        if archive.has_tables().await.map_err(failed)? {
            let row = archive.client.query_opt(MADE_BY, &[]).await.map_err(failed)?;
            let found = row.map_or(Ok(0), |row| row.try_get(0)).map_err(failed)?;
            if found > VERSION {
                // From which version on it is readable may be covered by the mark of an import.
                return Err(OpenError::Newer { found, readable_from: found, known: VERSION });
            }
        }
        Ok(archive)
    }

    async fn has_tables(&self) -> Result<bool, tokio_postgres::Error> {
        self.client.query_one("SELECT to_regclass('windlass_meta') IS NOT NULL", &[]).await?.try_get(0)
    }
}

fn fault(error: tokio_postgres::Error) -> StoreError {
    StoreError::Unavailable(describe(&error))
}

#[async_trait]
impl Archive for PostgresArchive {
    async fn enqueued(&mut self) -> Result<u64, StoreError> {
        let row = self.client.query_one(ENQUEUED, &[]).await.map_err(fault)?;
        Ok(from_integer(row.try_get(0).map_err(fault)?))
    }

    async fn is_empty(&mut self) -> Result<bool, StoreError> {
        for table in FILLED {
            let sql = format!("SELECT EXISTS (SELECT FROM {table})");
            let row = self.client.query_one(&sql, &[]).await.map_err(fault)?;
            if row.try_get(0).map_err(fault)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn server(&mut self) -> Result<Option<String>, StoreError> {
        let silent = to_integer(SERVER_SILENT_AFTER.0);
        let row = self.client.query_opt(UP, &[&silent]).await.map_err(fault)?;
        row.map(|row| row.try_get(0).map_err(fault)).transpose()
    }

    async fn stage(&mut self) -> Result<ImportStage, StoreError> {
        if !self.has_tables().await.map_err(fault)? {
            return Ok(ImportStage::None);
        }
        let row = self.client.query_opt(MARK, &[]).await.map_err(fault)?;
        let readable_from = row.map(|row| row.try_get::<_, i32>(0)).transpose().map_err(fault)?;
        Ok(stage_of(readable_from.map(i64::from)))
    }

    async fn set_stage(&mut self, stage: ImportStage) -> Result<(), StoreError> {
        let mark = mark_of(stage, READABLE_FROM.into());
        let sql = format!("UPDATE windlass_meta SET readable_from = {mark}");
        self.client.batch_execute(&sql).await.map_err(fault)
    }

    async fn clear(&mut self) -> Result<(), StoreError> {
        let sql = format!("TRUNCATE {}; UPDATE windlass_lock_floor SET version = 0", FILLED.join(", "));
        self.client.batch_execute(&sql).await.map_err(fault)
    }
}
