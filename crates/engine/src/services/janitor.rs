//! Deletes what was kept long enough, a little at a time.

use std::sync::Arc;

use windlass_store::{Change, LockChange, Now, Outcome, Retention, Service};

use crate::{Engine, EngineError, RoundsOf};

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
        self.engine.rounds.note(RoundsOf::Janitor, self.round(now).await)
    }

    async fn round(&self, now: Now) -> Result<u64, EngineError> {
        if !self.engine.leads(Service::Sweeping, now) {
            return Ok(0);
        }
        let swept = self.engine.store.sweep(&self.retention, now, ROUND_MAX).await?;
        Ok(swept + self.delete_free_locks(now).await?)
    }

    /// Deletes locks that nobody has or waits for. One that somebody asks for meanwhile stays: its version differs.
    async fn delete_free_locks(&self, now: Now) -> Result<u64, EngineError> {
        let free = self.engine.store.free_locks(ROUND_MAX).await?;
        if free.is_empty() {
            return Ok(0);
        }
        let changes = free.into_iter().map(|lock| Change::Lock(LockChange::delete(lock, now.wall)));
        let outcomes = self.engine.store.commit(changes.collect()).await?;
        Ok(outcomes.into_iter().filter(|outcome| *outcome == Outcome::Committed).count() as u64)
    }
}
