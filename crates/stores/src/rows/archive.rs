//! The way to a database past its servers, for exports and imports: what an import fills, and how it keeps servers away
//! meanwhile.

use async_trait::async_trait;
use windlass_store::{Archive, ImportStage, SERVER_SILENT_AFTER, StoreError, SubmitKey};

use super::{Columns, Fault};
use crate::{OpenError, Schema};

/// The tables with what a store keeps of tasks and of all that belongs to them, in every product.
pub(crate) const FILLED: [&str; 20] = [
    "windlass_task",
    "windlass_wait",
    "windlass_member",
    "windlass_result",
    "windlass_history",
    "windlass_outbox",
    "windlass_submit_key",
    "windlass_unique_task",
    "windlass_remains",
    "windlass_message",
    "windlass_lock",
    "windlass_lock_waiter",
    "windlass_alarm",
    "windlass_flow",
    "windlass_queue",
    "windlass_limit",
    "windlass_begun",
    "windlass_log",
    "windlass_record",
    "windlass_journal",
];

/// The number of enqueued tasks.
pub(crate) const ENQUEUED: &str =
    "SELECT count(*) FROM windlass_enqueued WHERE refused IS NULL AND stands_for IS NULL";

/// Why an export fails whose connection is lost: another connection would read a later moment.
pub(crate) const SNAPSHOT_LOST: &str =
    "the connection that read the store as of one moment was lost: start again";

/// The lowest version that servers must know while an import fills the tables: no server knows it.
pub(crate) const IMPORTING: i64 = i32::MAX as i64;

/// The same while an import sees whether the tables are empty and nobody works on them.
pub(crate) const RESERVED: i64 = IMPORTING - 1;

/// What an import is doing, by the lowest version that servers must know.
fn stage_of(readable_from: i64) -> ImportStage {
    match readable_from {
        IMPORTING => ImportStage::Filling,
        RESERVED => ImportStage::Reserved,
        _ => ImportStage::None,
    }
}

/// The lowest version that servers must know then; it is `readable_from` without an import.
fn mark_of(stage: ImportStage, readable_from: i64) -> i64 {
    match stage {
        ImportStage::None => readable_from,
        ImportStage::Reserved => RESERVED,
        ImportStage::Filling => IMPORTING,
    }
}

/// An idempotency key from its row.
pub(crate) fn submit_key(scope: &[u8], fingerprint: &[u8]) -> Result<SubmitKey, StoreError> {
    let hash = |bytes: &[u8]| {
        let wrong = |_| StoreError::Damaged("an idempotency key does not have 32 bytes".to_owned());
        bytes.try_into().map_err(wrong)
    };
    Ok(SubmitKey { scope: hash(scope)?, fingerprint: hash(fingerprint)? })
}

/// A connection that is not from the pool of a store.
pub(crate) trait Direct: Send + Sync + Sized + 'static {
    /// Where the database is.
    type Options: Sync;

    /// A row of an answer.
    type Row: Columns;

    /// The version that this program makes and writes.
    const VERSION: i64;

    /// The lowest version that servers must know to work on what this program makes.
    const READABLE_FROM: i64;

    /// Returns a row where the tables exist.
    const HAS_TABLES: &'static str;

    /// The clock of the database, which servers follow, in milliseconds since 1970.
    const NOW: &'static str;

    /// Takes the lock of imports, which lasts as long as the connection. Returns whether it was free.
    const LOCK_IMPORT: &'static str;

    /// Deletes the rows of an import.
    fn clear() -> Vec<String>;

    /// Connects.
    fn connect(options: &Self::Options) -> impl Future<Output = Result<Self, OpenError>> + Send;

    /// The first row of an answer.
    fn first(&mut self, sql: &str) -> impl Future<Output = Result<Option<Self::Row>, Fault>> + Send;

    /// Runs a statement without an answer.
    fn run(&mut self, sql: &str) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Closes the connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Returns the version of the tables in a database, and changes nothing.
pub(crate) async fn schema<C: Direct>(options: &C::Options) -> Result<Schema, OpenError> {
    let mut direct = C::connect(options).await?;
    let versions = versions(&mut direct).await;
    direct.close().await;
    let (found, readable_from) = versions.map_err(unreadable)?;
    Ok(Schema { found, readable_from, known: C::VERSION })
}

/// The version of the tables, and the lowest version that servers must know; 0 without tables.
async fn versions<C: Direct>(direct: &mut C) -> Result<(i64, i64), Fault> {
    if direct.first(C::HAS_TABLES).await?.is_none() {
        return Ok((0, 0));
    }
    let row = direct.first("SELECT schema_version, readable_from FROM windlass_meta").await?;
    row.map_or(Ok((0, 0)), |row| Ok((row.number(0)?, row.number(1)?)))
}

fn unreadable(fault: Fault) -> OpenError {
    OpenError::Migration { message: fault.to_string(), advice: "see the server's log" }
}

/// A connection past the servers of a database.
pub(crate) struct RowArchive<C> {
    direct: C,
}

impl<C: Direct> RowArchive<C> {
    /// Opens a database to look at it.
    pub(crate) async fn to_look(options: &C::Options) -> Result<Self, OpenError> {
        Ok(Self { direct: C::connect(options).await? })
    }

    /// Opens a database to fill it, which one process at a time may do.
    pub(crate) async fn to_fill(options: &C::Options) -> Result<Self, OpenError> {
        let mut archive = Self::to_look(options).await?;
        let locked = archive.direct.first(C::LOCK_IMPORT).await.map_err(unreadable)?;
        if !locked.map_or(Ok(false), |row| row.flag(0)).map_err(unreadable)? {
            return Err(OpenError::Importing);
        }
        let (found, _) = versions(&mut archive.direct).await.map_err(unreadable)?;
        if found > C::VERSION {
            // The mark of an import may cover from which version on it is readable.
            return Err(OpenError::Newer { found, readable_from: found, known: C::VERSION });
        }
        Ok(archive)
    }
}

#[async_trait]
impl<C: Direct> Archive for RowArchive<C> {
    async fn enqueued(&mut self) -> Result<u64, StoreError> {
        let row = self.direct.first(ENQUEUED).await?;
        Ok(row.map(|row| row.number(0)).transpose()?.map_or(0, super::from_integer))
    }

    async fn is_empty(&mut self) -> Result<bool, StoreError> {
        for table in FILLED {
            if self.direct.first(&format!("SELECT 1 FROM {table} LIMIT 1")).await?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn server(&mut self) -> Result<Option<String>, StoreError> {
        let sql = format!(
            "SELECT address FROM windlass_server WHERE heard + {} > {} ORDER BY started_at, id LIMIT 1",
            SERVER_SILENT_AFTER.0,
            C::NOW
        );
        Ok(self.direct.first(&sql).await?.map(|row| row.any_text(0)))
    }

    async fn stage(&mut self) -> Result<ImportStage, StoreError> {
        Ok(stage_of(versions(&mut self.direct).await?.1))
    }

    async fn set_stage(&mut self, stage: ImportStage) -> Result<(), StoreError> {
        let mark = mark_of(stage, C::READABLE_FROM);
        Ok(self.direct.run(&format!("UPDATE windlass_meta SET readable_from = {mark}")).await?)
    }

    async fn clear(&mut self) -> Result<(), StoreError> {
        for sql in C::clear() {
            self.direct.run(&sql).await?;
        }
        Ok(self.direct.run("UPDATE windlass_lock_floor SET version = 0").await?)
    }
}
