//! Keeps leases: renews sessions in the store, detects when this server was suspended, ends polls that waited long
//! enough.
//!
//! It must not wait for commits: during the wait this server would look suspended, and the silence of workers would not
//! count. [`Reclaimer`](super::Reclaimer), which does wait, reclaims attempts of sessions that are over.

use std::sync::Arc;

use windlass_store::Now;

use super::stored_leases::Absence;
use crate::{Engine, EngineError, ExchangeAnswer, RoundsOf};

/// Keeps leases.
pub struct LeaseKeeper {
    engine: Arc<Engine>,
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
        let kept = self.round(now).await;
        self.engine.rounds.note(RoundsOf::LeaseKeeper, kept)
    }

    async fn round(&self, now: Now) -> Result<(), EngineError> {
        self.end_polls(now);
        let leases = &self.engine.stored_leases;
        if let Some(absence) = leases.absence(now) {
            self.return_from(absence, now).await?;
            leases.forget_writes();
        }
        let renewals = self.engine.sessions.lock().take_renewals(now);
        let has_renewed = !renewals.is_empty();
        self.engine.renew(renewals, now).await?;
        leases.kept(now, has_renewed);
        Ok(())
    }

    /// Handles a time in which this server was suspended or could not reach the store. The silence of the workers that
    /// call this server then means nothing. If the store was unavailable, the silence of no worker means anything.
    async fn return_from(&self, absence: Absence, now: Now) -> Result<(), EngineError> {
        let ms = now.mono.0 - absence.since.0;
        if self.engine.store.cluster().is_some() && !absence.has_failed {
            tracing::warn!(ms, "this server stood still: its workers get a new lease");
            self.engine.sessions.lock().note_unheard_since(absence.since);
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
