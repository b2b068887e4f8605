//! Keeps leases: renews sessions in the store, detects when this server was suspended, ends polls that waited long
//! enough.
//!
//! It must not wait for commits: during the wait this server would look suspended, and the silence of workers would not
//! count. [`Reclaimer`](super::Reclaimer), which does wait, reclaims attempts of sessions that are over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_core::Millis;
use windlass_store::Now;

use crate::{Engine, EngineError, ExchangeAnswer, RoundsOf};

/// If more time has passed since the last successful round, this server was suspended, and the silence of workers means
/// nothing. Less than half of the shortest lease: a server that was suspended that long could not receive renewals in
/// time.
const AWAY_AFTER: Millis = Millis(400);

/// Keeps leases.
pub struct LeaseKeeper {
    engine: Arc<Engine>,
}

/// The rounds of an engine's lease keepers.
#[derive(Debug, Default)]
pub(crate) struct LeaseRounds {
    last: Mutex<Option<Round>>,
}

/// The last successful round, and whether a later one failed.
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

    /// Whether leases are current: the last round succeeded a moment ago. After this server was suspended, nothing may
    /// be reclaimed from sessions before a round has given them new leases.
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

    /// Ends polls whose wait is over, and renews sessions in the store.
    ///
    /// # Errors
    /// When the store fails; the next round repeats the renewals.
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

    /// Handles a time in which this server was suspended or could not reach the store. The silence of the workers that
    /// call this server then means nothing. If the store was unavailable, the silence of no worker means anything.
    async fn return_from_away(&self, before: Round, now: Now) -> Result<(), EngineError> {
        let ms = now.mono.0 - before.at.0;
        if self.engine.store.is_shared() && !before.has_failed {
            tracing::warn!(ms, "this server was suspended: its workers get a new lease");
            self.engine.sessions.lock().note_unheard_since(before.at);
            return Ok(());
        }
        tracing::warn!(
            ms,
            "this server was suspended or could not reach its store: all workers get a new lease"
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
