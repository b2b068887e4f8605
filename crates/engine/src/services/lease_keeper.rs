//! Watches over leases: attempts of workers that went silent are made again, polls that waited long enough end.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::{
    Millis,
    planted::{Bug, is_planted},
};

use crate::{
    Engine, EngineError, ExchangeAnswer,
    inbox::{Item, Reply},
    ports::Now,
};

/// Attempts given up in one round.
const ROUND_MAX: usize = 1000;

/// This server was away when so much time has passed since the last round: silence of workers says nothing
/// then, and every session gets a full new lease. It is less than half of the shortest lease: a server that stood
/// still for as long could not hear in time what renews it.
const AWAY_AFTER: Millis = Millis(400);

/// Watches over leases.
pub struct LeaseKeeper {
    engine: Arc<Engine>,
    last_round: Mutex<Option<Millis>>,
}

impl LeaseKeeper {
    /// A lease keeper of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, last_round: Mutex::default() }
    }

    /// Ends polls and gives up attempts whose time is over. Tells how many attempts.
    ///
    /// # Errors
    /// When the store fails; what is over stays over.
    pub async fn run_once(&self, now: Now) -> Result<usize, EngineError> {
        self.engine.began.get_or_init(|| now);
        let before = self.last_round.lock().unwrap_or_else(PoisonError::into_inner).replace(now.mono);
        if before.is_some_and(|before| now.mono.0 > before.0 + AWAY_AFTER.0) {
            tracing::warn!("this server was away for a while; all workers get a full new lease");
            self.engine.store.forgive(now).await?;
        }
        self.end_polls(now);
        self.shorten_leases(now).await?;
        let lost = self.engine.store.lost(now, ROUND_MAX).await?;
        if lost.is_empty() || is_planted(Bug::NoLeaseExpiry) {
            return Ok(0);
        }
        let items: Vec<Item> = lost.into_iter().map(Item::Lost).collect();
        let replies = self.engine.inbox.decide(items).await?;
        let count = replies.iter().filter(|reply| matches!(reply, Reply::Task(_))).count();
        tracing::info!(count, "attempts of silent workers were made ready again");
        Ok(count)
    }

    fn end_polls(&self, now: Now) {
        let expired = self.engine.sessions.lock().expire(now);
        for session in expired {
            let lease = self.engine.sessions.lock().get(session).lease;
            self.engine.answer(session, ExchangeAnswer { lease, ..ExchangeAnswer::default() });
        }
    }

    /// An attached worker without an open poll is gone unless it opens one soon.
    async fn shorten_leases(&self, now: Now) -> Result<(), EngineError> {
        let closed = self.engine.sessions.lock().take_closed();
        for session in closed {
            self.engine.shorten_lease(session, now).await?;
        }
        Ok(())
    }
}
