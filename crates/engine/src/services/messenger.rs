//! Carries messages from one aggregate to another: each was written in its sender's commit and is consumed in
//! its receiver's, so none is lost and none acts twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_core::Millis;
use windlass_store::{Envelope, MessageId, Now, Service};

use crate::{Engine, EngineError, RoundsOf, deciding::inbox::Item};

/// Messages carried in one round.
const ROUND_MAX: usize = 1000;

/// Of several servers each carries the messages that it has sent itself, at once. What is still there after so long is
/// carried by the one that keeps time: its sender is gone.
const LEFT_AFTER: Millis = Millis(500);

/// Carries messages between aggregates.
pub struct Messenger {
    engine: Arc<Engine>,
    /// Messages of several servers that are under way, and when they were first seen.
    seen: Mutex<BTreeMap<MessageId, Millis>>,
}

impl Messenger {
    /// A messenger of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, seen: Mutex::default() }
    }

    /// Delivers a bounded number of messages. Tells how many.
    ///
    /// # Errors
    /// When the store fails; the messages stay.
    pub async fn run_once(&self, now: Now) -> Result<usize, EngineError> {
        self.engine.rounds.note(RoundsOf::Messenger, self.round(now).await)
    }

    async fn round(&self, now: Now) -> Result<usize, EngineError> {
        if !self.engine.leads(Service::Timekeeping, now) {
            return Ok(0);
        }
        let mut messages = self.engine.store.messages(self.engine.beside_damaged(ROUND_MAX)).await?;
        if self.engine.store.cluster().is_some() {
            messages = self.left(messages, now);
        }
        let items = self.engine.without_damaged(messages.into_iter().map(Item::Message));
        if items.is_empty() {
            return Ok(0);
        }
        let count = items.len();
        self.engine.inbox.decide(items).await?;
        Ok(count)
    }

    /// Those messages that are still there though they were seen a while ago.
    fn left(&self, messages: Vec<Envelope>, now: Now) -> Vec<Envelope> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *seen);
        let first_seen = |id: &MessageId| before.get(id).copied().unwrap_or(now.mono);
        *seen = messages.iter().map(|envelope| (envelope.id.clone(), first_seen(&envelope.id))).collect();
        let is_left = |id: &MessageId| first_seen(id).0.saturating_add(LEFT_AFTER.0) <= now.mono.0;
        messages.into_iter().filter(|envelope| is_left(&envelope.id)).collect()
    }
}
