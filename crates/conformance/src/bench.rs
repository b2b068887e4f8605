//! The test setup that each store's tests provide.

use std::sync::Arc;

use async_trait::async_trait;

use windlass_core::TaskId;

use windlass_store::{Now, Store};

/// Data of a store, empty at first, that can be opened and opened again.
#[async_trait]
pub trait Bench: Send {
    /// Opens the data. Earlier handles have been dropped by then. If several servers may work on the same data, it
    /// returns a handle for each, and the suite uses them in turns.
    async fn open(&mut self, now: Now) -> Vec<Arc<dyn Store>>;

    /// Whether the store keeps claims when it is reopened. A resident store does not: it waits for workers to return.
    fn keeps_claims(&self) -> bool;

    /// Damages the rows of a task while the data is closed, so that they cannot be read. Returns false if that is not
    /// possible.
    async fn damage(&mut self, _task: TaskId) -> bool {
        false
    }
}
