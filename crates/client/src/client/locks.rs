//! Locks.

use windlass_api::{List, Lock, ReleaseLock, ReleasedLock, SkipQueue};

use super::Client;
use crate::Error;

impl Client {
    /// The locks that have a holder, by name.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn locks(&self) -> Result<List<Lock>, Error> {
        self.all_pages(&["v1", "locks"], &[]).await
    }

    /// One lock with its waiters.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if the lock has no holder.
    pub async fn lock(&self, name: &str) -> Result<Lock, Error> {
        self.get(&["v1", "locks", name]).await
    }

    /// Takes a lock from its holder; the next waiter gets it. The former holder is not stopped.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if the lock has no holder.
    pub async fn release_lock(&self, name: &str, reason: &str) -> Result<ReleasedLock, Error> {
        self.post(&["v1", "locks", name, "release"], &ReleaseLock { reason: reason.to_owned() }).await
    }

    /// Moves an exclusive queue past the task that has it. Returns the queue.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no task has the queue, and with status 409 while an attempt of that task is
    /// under way.
    pub async fn skip_queue(&self, name: &str, reason: &str) -> Result<Lock, Error> {
        self.post(&["v1", "queues", name, "skip"], &SkipQueue { reason: reason.to_owned() }).await
    }
}
