//! Watches over leases: attempts of workers that went silent are made again, polls that waited long enough end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_core::{
    Millis,
    planted::{Bug, is_planted},
};

use crate::{
    Engine, EngineError, ExchangeAnswer,
    inbox::{Item, Reply},
    ports::{Claimed, Now, Service},
};

/// Attempts given up in one round.
const ROUND_MAX: usize = 1000;

/// Attempts of couriers given back in one round: one after the other, and the round is not to last for long.
const RELEASES_MAX: usize = 100;

/// This server was away when so much time has passed since the last round that succeeded: silence of workers says
/// nothing then. It is less than half of the shortest lease: a server that stood still for as long could not hear in
/// time what renews it.
const AWAY_AFTER: Millis = Millis(400);

/// Watches over leases.
pub struct LeaseKeeper {
    engine: Arc<Engine>,
    last_round: Mutex<Option<Round>>,
}

/// The last round that succeeded, and what came after it.
#[derive(Debug, Clone, Copy)]
struct Round {
    at: Millis,
    /// A round after it failed.
    has_failed: bool,
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
        let before = *self.last_round();
        let lost = self.round(before, now).await;
        match &lost {
            Ok(_) => *self.last_round() = Some(Round { at: now.mono, has_failed: false }),
            Err(_) => {
                if let Some(round) = self.last_round().as_mut() {
                    round.has_failed = true;
                }
            }
        }
        lost
    }

    fn last_round(&self) -> MutexGuard<'_, Option<Round>> {
        self.last_round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn round(&self, before: Option<Round>, now: Now) -> Result<usize, EngineError> {
        self.end_polls(now);
        if let Some(before) = before.filter(|before| now.mono.0 > before.at.0 + AWAY_AFTER.0) {
            self.return_from_away(before, now).await?;
        }
        let renewals = self.engine.sessions.lock().take_renewals(now);
        self.engine.renew(renewals, now).await?;
        if !self.engine.leads(Service::Timekeeping, now) {
            return Ok(0);
        }
        let lost = self.engine.store.lost(now, ROUND_MAX).await?;
        if lost.is_empty() || is_planted(Bug::NoLeaseExpiry) {
            return Ok(0);
        }
        // Nobody has begun what a courier offers, so it is no death: another courier or a worker takes it from the queue.
        let (offered, lost): (Vec<Claimed>, Vec<Claimed>) =
            lost.into_iter().partition(|claimed| claimed.session.is_courier());
        if !offered.is_empty() {
            tracing::info!(count = offered.len(), "what couriers of other servers offered is free again");
            self.engine.timers.set();
        }
        for claimed in offered.into_iter().take(RELEASES_MAX) {
            self.engine.store.release(claimed.session, claimed.id, now).await?;
        }
        if lost.is_empty() {
            return Ok(0);
        }
        let items: Vec<Item> = lost.into_iter().map(Item::Lost).collect();
        let replies = self.engine.inbox.decide(items).await?;
        let count = replies.iter().filter(|reply| matches!(reply, Reply::Task(_))).count();
        tracing::info!(count, "attempts of silent workers were made ready again");
        Ok(count)
    }

    /// This server stood still, or could not reach the store. The silence of workers that talk to it says nothing;
    /// where the store was away, that of no worker does.
    async fn return_from_away(&self, before: Round, now: Now) -> Result<(), EngineError> {
        if self.engine.store.is_shared() && !before.has_failed {
            tracing::warn!("this server was away for a while; its workers get a full new lease");
            self.engine.sessions.lock().note_unheard_since(before.at);
            return Ok(());
        }
        tracing::warn!("this server was away for a while; all workers get a full new lease");
        Ok(self.engine.store.forgive(now).await?)
    }

    fn end_polls(&self, now: Now) {
        let expired = self.engine.sessions.lock().expire(now);
        for session in expired {
            let lease = self.engine.sessions.lock().get(session).lease;
            self.engine.answer(session, ExchangeAnswer { lease, ..ExchangeAnswer::default() });
        }
    }
}
