//! What taking a store into a file and back needs beside what servers do.

use async_trait::async_trait;
use windlass_core::{TaskId, Wakeup};

use super::{Announced, KeyChange, Store, StoreError, SubmitKey};

/// A task as it was submitted, for an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// Where it stands among all: the next ones are asked for with it.
    pub place: u128,
    /// The task.
    pub id: TaskId,
    /// The key under which it was submitted.
    pub key: Option<SubmitKey>,
}

/// How far an import into a store has come. It stays with the store, so what was broken off is known for what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportStage {
    /// There is none: servers open it.
    None,
    /// No server opens it, but what is in it is not the import's: one may have worked on it before.
    Reserved,
    /// No server opens it, and all that is in it is the import's.
    Filling,
}

/// A store as it was at one moment, whatever servers and applications do to it meanwhile: what an export reads.
#[async_trait]
pub trait Snapshot: Send {
    /// The store as it was. Nothing can be changed by way of it.
    fn store(&self) -> &dyn Store;

    /// At most `limit` tasks behind that place, those submitted first before others.
    async fn submitted(&mut self, after: Option<u128>, limit: usize) -> Result<Vec<Submitted>, StoreError>;

    /// What is in the outbox of these tasks, and how many events each has; of each task in the order in which it happened.
    async fn unannounced(&mut self, tasks: &[TaskId]) -> Result<Vec<(Announced, u64)>, StoreError>;

    /// At most `limit` idempotency keys with scopes above `after` that stay by themselves: their task was deleted, or was
    /// submitted under another one.
    async fn other_keys(
        &mut self,
        after: Option<[u8; 32]>,
        limit: usize,
    ) -> Result<Vec<KeyChange>, StoreError>;

    /// How many tasks applications had enqueued that no server had imported.
    async fn enqueued(&mut self) -> Result<u64, StoreError>;
}

/// A snapshot of a store that keeps what tasks wait for as rows.
#[async_trait]
pub trait RowSnapshot: Snapshot {
    /// What rows say that tasks wait for, of those tasks behind `after` and up to `last`; without it, of all behind.
    async fn waits(
        &mut self,
        after: Option<TaskId>,
        last: Option<TaskId>,
    ) -> Result<Vec<(TaskId, Wakeup)>, StoreError>;
}

/// The way to a database past its servers, as it is now.
#[async_trait]
pub trait Archive: Send {
    /// How many tasks applications enqueued that no server has imported yet.
    async fn enqueued(&mut self) -> Result<u64, StoreError>;

    /// Whether nothing is in it.
    async fn is_empty(&mut self) -> Result<bool, StoreError>;

    /// The address of a server that was heard of lately.
    async fn server(&mut self) -> Result<Option<String>, StoreError>;

    /// How far an import has come, which may be one that was broken off.
    async fn stage(&mut self) -> Result<ImportStage, StoreError>;

    /// An import has come so far.
    async fn set_stage(&mut self, stage: ImportStage) -> Result<(), StoreError>;

    /// Deletes whatever is in it.
    async fn clear(&mut self) -> Result<(), StoreError>;
}
