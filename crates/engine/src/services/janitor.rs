//! Deletes what was kept long enough, a little at a time.

use std::sync::Arc;

use crate::{
    Engine, EngineError,
    ports::{Now, Retention, Service},
};

/// Rows deleted in one round, so that a round never holds the writer up for long.
const ROUND_MAX: usize = 500;

/// Deletes what was kept long enough.
pub struct Janitor {
    engine: Arc<Engine>,
    retention: Retention,
}

impl Janitor {
    /// A janitor of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, retention: Retention) -> Self {
        Self { engine, retention }
    }

    /// Deletes a bounded number of rows. Tells how many went; more may be left when it is not 0.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn run_once(&self, now: Now) -> Result<u64, EngineError> {
        if !self.engine.leads(Service::Sweeping, now) {
            return Ok(0);
        }
        Ok(self.engine.store.sweep(&self.retention, now, ROUND_MAX).await?)
    }
}
