//! Delivers messages between aggregates. Each message is written in its sender's commit and consumed in its receiver's
//! commit, so it is neither lost nor processed twice while the store keeps its commits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_core::Millis;
use windlass_store::{Envelope, MessageId, Now, Service};

use super::leading::Led;
use crate::{Engine, EngineError, RoundsOf, deciding::inbox::Item};

/// The maximum number of messages delivered in one round.
pub(crate) const MESSAGES_MAX: usize = 1000;

/// With several servers, each one delivers its own messages at once. The timekeeping server delivers messages that are
/// still there after this time, because their sender is gone.
const LEFT_AFTER: Millis = Millis(500);

/// Delivers messages between aggregates.
pub struct Messenger {
    engine: Arc<Engine>,
    /// With several servers: undelivered messages, and when they were first seen.
    seen: Mutex<BTreeMap<MessageId, Millis>>,
}

impl Messenger {
    /// A messenger of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, seen: Mutex::default() }
    }

    /// Delivers a bounded number of messages. Returns their number.
    ///
    /// # Errors
    /// When the store fails; the messages stay.
    pub async fn run_once(&self, now: Now) -> Result<usize, EngineError> {
        let round = |led| self.round(led, now);
        self.engine.round_of(RoundsOf::Messenger, Service::Timekeeping, now, round).await
    }

    async fn round(&self, led: Led, now: Now) -> Result<usize, EngineError> {
        let mut messages = self.engine.store.messages(self.engine.beside_damaged(MESSAGES_MAX)).await?;
        if self.engine.store.cluster().is_some() {
            messages = self.left(messages, now);
        }
        let items = self.engine.without_damaged(messages.into_iter().map(Item::Message));
        if items.is_empty() {
            return Ok(0);
        }
        let count = items.len();
        self.engine.inbox.decide_as(led.lease, items).await?;
        Ok(count)
    }

    /// The messages that are still undelivered some time after they were first seen.
    fn left(&self, messages: Vec<Envelope>, now: Now) -> Vec<Envelope> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *seen);
        let first_seen = |id: &MessageId| before.get(id).copied().unwrap_or(now.mono);
        *seen = messages.iter().map(|envelope| (envelope.id.clone(), first_seen(&envelope.id))).collect();
        let is_left = |id: &MessageId| first_seen(id).0.saturating_add(LEFT_AFTER.0) <= now.mono.0;
        messages.into_iter().filter(|envelope| is_left(&envelope.id)).collect()
    }
}
