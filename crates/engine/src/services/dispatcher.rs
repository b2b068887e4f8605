//! Hands out attempts that became ready without a commit of this server: after the adoption grace, or by other servers.

use std::sync::Arc;

use windlass_store::Now;

use crate::{Engine, EngineError, RoundsOf};

/// Hands ready attempts to waiting polls.
pub struct Dispatcher {
    engine: Arc<Engine>,
}

impl Dispatcher {
    /// A dispatcher of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Answers polls for which there are attempts.
    ///
    /// # Errors
    /// When the store fails; polls continue to wait.
    pub async fn run_once(&self, now: Now) -> Result<(), EngineError> {
        self.engine.rounds.note(RoundsOf::Dispatcher, self.round(now).await)
    }

    async fn round(&self, now: Now) -> Result<(), EngineError> {
        self.engine.dispatch(now).await
    }
}
