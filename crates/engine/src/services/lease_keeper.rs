//! Keeps leases: tells the store of sessions, notices when this server was away, ends polls that waited long enough.
//!
//! It must not wait for commits: while it waits this server looks as if it was away, and silence of workers would count for
//! nothing. [`Reclaimer`](super::Reclaimer), which does wait, takes attempts from sessions that are over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_core::Millis;
use windlass_store::Now;

use crate::{Engine, EngineError, ExchangeAnswer, RoundsOf};

/// This server was away when so much time has passed since the last round that succeeded: silence of workers says
/// nothing then. It is less than half of the shortest lease: a server that stood still for as long could not hear in
/// time what renews it.
const AWAY_AFTER: Millis = Millis(400);

/// Keeps leases.
pub struct LeaseKeeper {
    engine: Arc<Engine>,
}

/// What lease keepers of an engine have done.
#[derive(Debug, Default)]
pub(crate) struct LeaseRounds {
    last: Mutex<Option<Round>>,
}

/// The last round that succeeded, and what came after it.
#[derive(Debug, Clone, Copy)]
struct Round {
    at: Millis,
    /// A round after it failed.
    has_failed: bool,
}

impl LeaseRounds {
    fn last(&self) -> MutexGuard<'_, Option<Round>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether leases are as they should be: the last round succeeded a moment ago. After a time in which this server stood
    /// still nothing is to be taken from sessions before a round has given them new leases.
    pub(crate) fn are_current(&self, now: Now) -> bool {
        self.last().is_some_and(|round| !round.was_long_ago(now))
    }
}

impl Round {
    fn was_long_ago(&self, now: Now) -> bool {
        now.mono.0 > self.at.0 + AWAY_AFTER.0
    }
}

impl LeaseKeeper {
    /// A lease keeper of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Ends polls whose time is over, and tells the store of sessions.
    ///
    /// # Errors
    /// When the store fails; it is told again in the next round.
    pub async fn run_once(&self, now: Now) -> Result<(), EngineError> {
        self.engine.began.get_or_init(|| now);
        let rounds = &self.engine.lease_rounds;
        let before = *rounds.last();
        let kept = self.round(before, now).await;
        match &kept {
            Ok(()) => *rounds.last() = Some(Round { at: now.mono, has_failed: false }),
            Err(_) => {
                if let Some(round) = rounds.last().as_mut() {
                    round.has_failed = true;
                }
            }
        }
        self.engine.rounds.note(RoundsOf::LeaseKeeper, kept)
    }

    async fn round(&self, before: Option<Round>, now: Now) -> Result<(), EngineError> {
        self.end_polls(now);
        if let Some(before) = before.filter(|before| before.was_long_ago(now)) {
            self.return_from_away(before, now).await?;
        }
        let renewals = self.engine.sessions.lock().take_renewals(now);
        Ok(self.engine.renew(renewals, now).await?)
    }

    /// This server stood still, or could not reach the store. The silence of workers that talk to it says nothing;
    /// where the store was away, that of no worker does.
    async fn return_from_away(&self, before: Round, now: Now) -> Result<(), EngineError> {
        let ms = now.mono.0 - before.at.0;
        if self.engine.store.cluster().is_some() && !before.has_failed {
            tracing::warn!(ms, "this server stood still: its workers get a new lease");
            self.engine.sessions.lock().note_unheard_since(before.at);
            return Ok(());
        }
        tracing::warn!(
            ms,
            "this server stood still or could not reach its store: all workers get a new lease"
        );
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
