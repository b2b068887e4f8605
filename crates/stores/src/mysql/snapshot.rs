//! What only exports read.

use std::sync::Arc;

use windlass_core::TaskId;

use super::{
    connection::Connection,
    news::{News, Notifier},
    open::{MySqlOptions, Opened, open},
    script::{Cell, Script, cells},
    store::MySqlStore,
};
use crate::{
    OpenError,
    rows::{DatabaseSnapshot, ENQUEUED, snapshot::SnapshotSql, to_integer},
};

const SUBMITTED: &str = "SELECT t.id, k.scope, k.fingerprint
    FROM windlass_task t LEFT JOIN windlass_submit_key k ON k.scope = t.scope AND coalesce(k.orphan, 0) = 0
    WHERE t.id > ? ORDER BY t.id LIMIT ?";
const OTHER_KEYS: &str = "SELECT scope, fingerprint, task, created_at FROM windlass_submit_key
    WHERE orphan = 1 AND scope > ? ORDER BY scope LIMIT ?";
const WAITS: &str = "SELECT task, act FROM windlass_wait
    WHERE task > ? AND task <= coalesce(?, repeat(x'ff', 16)) ORDER BY task, act";

/// A MySQL or MariaDB database as it was when this was opened.
pub type MySqlSnapshot = DatabaseSnapshot<Connection>;

impl MySqlSnapshot {
    /// Opens a database, brings its tables to today's version, and reads it as it is at this moment. Must be called on a
    /// Tokio runtime.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub async fn open(options: &MySqlOptions) -> Result<Self, OpenError> {
        let Opened { database, token_key } = open(options).await?;
        let store = MySqlStore::over(
            database.snapshot(),
            Arc::new(Notifier::new(options.clone())),
            News::none(),
            token_key,
        );
        Self::take(store).await.map_err(|error| OpenError::Snapshot(error.to_string()))
    }
}

impl SnapshotSql for Connection {
    fn submitted(after: u128, limit: usize) -> Script {
        Script::one(SUBMITTED, cells![after, to_integer(limit as u64)])
    }

    fn outbox(tasks: &[TaskId]) -> Script {
        let mut script = Script::default();
        let keys = tasks.iter().map(|task| Cell::from(*task));
        let sql = "SELECT task, after, last FROM windlass_outbox WHERE task";
        script.for_keys(sql, keys, "ORDER BY task, after");
        script
    }

    fn other_keys(after: Vec<u8>, limit: usize) -> Script {
        Script::one(OTHER_KEYS, cells![after, to_integer(limit as u64)])
    }

    fn enqueued() -> Script {
        Script::one(ENQUEUED, [])
    }

    fn waits(after: TaskId, last: Option<TaskId>) -> Script {
        Script::one(WAITS, cells![after, last])
    }
}
