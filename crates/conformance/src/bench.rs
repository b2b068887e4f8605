//! What a store's tests bring along.

use std::sync::Arc;

use async_trait::async_trait;

use windlass_core::TaskId;

use windlass_store::{Now, Store};

/// Data of a store, empty at first, that can be opened and opened again.
#[async_trait]
pub trait Bench: Send {
    /// Opens the data. Handles given before are dropped by then. Where several servers may work on the same
    /// data it gives a handle for each, and the suite uses them in turns.
    async fn open(&mut self, now: Now) -> Vec<Arc<dyn Store>>;

    /// Whether the store still knows after a reopening who has which attempt. A resident store does not: it
    /// waits for workers to come back.
    fn keeps_claims(&self) -> bool;

    /// Damages the rows of a task while the data is closed, so that what it is cannot be understood. False = there is no
    /// way to.
    async fn damage(&mut self, _task: TaskId) -> bool {
        false
    }
}
