//! Tasks that applications enqueue in transactions of their own: a port of stores that are databases which applications
//! can share.

use async_trait::async_trait;
use windlass_core::TaskId;

use super::{Leadership, StoreError};

/// A task that an application enqueued, and that was not imported yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueued {
    /// Where it is in the order in which they were enqueued, from 1.
    pub place: u64,
    /// The id that the application got: the task has it.
    pub id: TaskId,
    /// Who enqueued it: the user of the database.
    pub by: Box<str>,
    /// What is to be done: a document as it is submitted otherwise.
    pub task: Box<str>,
    /// How often it was refused before.
    pub refusals: u32,
}

/// What became of a task that was enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It was imported: it is removed here.
    Accepted,
    /// It was deduplicated to another task, so there is none with its id.
    StandsFor(TaskId),
    /// It cannot be imported as it is: it is kept until an operator changes something.
    Refused(Box<str>),
}

/// What is known of a task that was enqueued and is none of the store's, by the id that the application got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It waits to be imported.
    Waits,
    /// It was deduplicated to another task.
    StandsFor(TaskId),
    /// It was not imported, for this reason.
    Refused(Box<str>),
}

/// Tasks that applications enqueued.
#[async_trait]
pub trait EnqueuedTasks: Send + Sync {
    /// At most `limit` that wait to be imported, behind the place `after`, and no more than fit in memory well, in the
    /// order in which they were enqueued. They are returned again until they are settled.
    async fn waiting(&self, limit: usize, after: u64) -> Result<Vec<Enqueued>, StoreError>;

    /// Notes what became of these. Returns of how many it was noted: one that an application is just about to enqueue again
    /// is returned again. `led` is checked as in [`Store::commit_and_claim`](super::Store::commit_and_claim).
    async fn settle(
        &self,
        settled: Vec<(TaskId, Settlement)>,
        led: Option<Leadership>,
    ) -> Result<usize, StoreError>;

    /// What is known of the one with this id, until it is imported.
    async fn standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError>;

    /// Returns when something may have been enqueued since the last call. It may return for nothing.
    async fn arrival(&self);
}
