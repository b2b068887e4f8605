//! What only exports read.

use windlass_core::TaskId;

use super::{
    commit::Memory,
    connection::{Batch, Connection, parameters},
    news::News,
    open::{PostgresOptions, open, snapshot},
    store::PostgresStore,
    uuid, uuids,
};
use crate::{
    OpenError,
    rows::{DatabaseSnapshot, ENQUEUED, snapshot::SnapshotSql, to_integer},
};

const SUBMITTED: &str = "SELECT t.id, k.scope, k.fingerprint
    FROM windlass_task t LEFT JOIN windlass_submit_key k ON k.scope = t.scope AND NOT k.orphan
    WHERE t.id > $1 ORDER BY t.id LIMIT $2";
const OUTBOX: &str = "SELECT task, after, last FROM windlass_outbox
    WHERE task = ANY($1::uuid[]) ORDER BY task, after";
const OTHER_KEYS: &str = "SELECT scope, fingerprint, task, created_at FROM windlass_submit_key
    WHERE orphan AND scope > $1 ORDER BY scope LIMIT $2";
const WAITS: &str = "SELECT task, act FROM windlass_wait
    WHERE task > $1 AND ($2::uuid IS NULL OR task <= $2) ORDER BY task, act";

/// A PostgreSQL database as it was when this was opened.
pub type PostgresSnapshot = DatabaseSnapshot<Connection>;

impl PostgresSnapshot {
    /// Opens a database, brings its tables to today's version, and reads it as it is at this moment. Must be called on a
    /// Tokio runtime.
    ///
    /// # Errors
    /// When it cannot be reached, does not let us in, takes no writes, or has tables of a newer version.
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let token_key = open(options).await?.token_key;
        let store = PostgresStore::over(snapshot(options)?, Memory::default(), News::none(), token_key);
        Self::take(store).await.map_err(|error| OpenError::Snapshot(error.to_string()))
    }
}

impl SnapshotSql for Connection {
    fn submitted(after: u128, limit: usize) -> Batch<'static> {
        Batch::one(SUBMITTED, parameters![uuid(TaskId(after)), to_integer(limit as u64)])
    }

    fn outbox(tasks: &[TaskId]) -> Batch<'_> {
        Batch::one(OUTBOX, parameters![uuids(tasks)])
    }

    fn other_keys(after: Vec<u8>, limit: usize) -> Batch<'static> {
        Batch::one(OTHER_KEYS, parameters![after, to_integer(limit as u64)])
    }

    fn enqueued() -> Batch<'static> {
        Batch::one(ENQUEUED, Vec::new())
    }

    fn waits(after: TaskId, last: Option<TaskId>) -> Batch<'static> {
        Batch::one(WAITS, parameters![uuid(after), last.map(uuid)])
    }
}
