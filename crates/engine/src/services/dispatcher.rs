//! Hands out what became ready without a commit of this server: after the adoption grace, and by other servers.

use std::sync::Arc;

use windlass_store::Now;

use crate::{Engine, EngineError, RoundsOf};

/// Hands ready attempts to polls that wait.
pub struct Dispatcher {
    engine: Arc<Engine>,
}

impl Dispatcher {
    /// A dispatcher of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Answers polls for which there is something.
    ///
    /// # Errors
    /// When the store fails; polls go on waiting.
    pub async fn run_once(&self, now: Now) -> Result<(), EngineError> {
        self.engine.rounds.note(RoundsOf::Dispatcher, self.round(now).await)
    }

    async fn round(&self, now: Now) -> Result<(), EngineError> {
        self.engine.dispatch(now).await
    }
}
