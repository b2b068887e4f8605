//! Deletes rows whose retention has ended, a few at a time.

use std::sync::Arc;

use windlass_store::{Change, LockChange, Now, Outcome, Retention, Service};

use super::leading::Led;
use crate::{Engine, EngineError, RoundsOf};

/// The maximum number of rows deleted in one round, so that a round does not block the writer for long.
const ROUND_MAX: usize = 500;

/// Deletes rows whose retention has ended.
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

    /// Deletes a bounded number of rows. Returns their number; if it is not 0, more may be left.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn run_once(&self, now: Now) -> Result<u64, EngineError> {
        let round = |led| self.round(led, now);
        self.engine.round_of(RoundsOf::Janitor, Service::Sweeping, now, round).await
    }

    async fn round(&self, led: Led, now: Now) -> Result<u64, EngineError> {
        let swept = self.engine.store.sweep(&self.retention, led.lease, now, ROUND_MAX).await?;
        Ok(swept + self.delete_free_locks(led, now).await?)
    }

    /// Deletes locks without holders and waiters. A lock that is requested meanwhile stays, because its version
    /// differs.
    async fn delete_free_locks(&self, led: Led, now: Now) -> Result<u64, EngineError> {
        let generation = self.engine.store.generation();
        let free = self.engine.store.free_locks(ROUND_MAX).await?;
        if free.is_empty() {
            return Ok(0);
        }
        let delete = |lock| Change::Lock(LockChange::delete(lock, now.wall).decided_in(generation));
        let changes = free.into_iter().map(delete);
        let outcomes = self.engine.commit_as(led.lease, changes.collect(), now).await?;
        Ok(outcomes.into_iter().filter(|outcome| *outcome == Outcome::Committed).count() as u64)
    }
}
