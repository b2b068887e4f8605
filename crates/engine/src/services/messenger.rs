//! Carries messages from one aggregate to another: each was written in its sender's commit and is consumed in
//! its receiver's, so none is lost and none acts twice.

use std::sync::Arc;

use crate::{Engine, EngineError, inbox::Item, ports::Now};

/// Messages carried in one round.
const ROUND_MAX: usize = 1000;

/// Carries messages between aggregates.
pub struct Messenger {
    engine: Arc<Engine>,
}

impl Messenger {
    /// A messenger of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Delivers a bounded number of messages. Tells how many.
    ///
    /// # Errors
    /// When the store fails; the messages stay.
    pub async fn run_once(&self, _now: Now) -> Result<usize, EngineError> {
        let messages = self.engine.store.messages(ROUND_MAX).await?;
        if messages.is_empty() {
            return Ok(0);
        }
        let items: Vec<Item> = messages.into_iter().map(Item::Message).collect();
        let count = items.len();
        self.engine.inbox.decide(items).await?;
        Ok(count)
    }
}
