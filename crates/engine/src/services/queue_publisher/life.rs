//! A queue publisher's session: its renewal, its end, and how a queue publisher takes over the attempts of another one.

use std::sync::Arc;

use windlass_core::Millis;
use windlass_store::{Adoption, AttemptId, Now, PollState, SessionRenewal, WorkerState};

use crate::{
    EngineError,
    services::queue_publisher::{QueuePublisher, RENEW_EVERY},
};

/// How long a queue publisher may be silent before others offer its attempts.
const LEASE: Millis = Millis::from_secs(30);

impl QueuePublisher {
    /// Ends in order, after the current round: unsent attempts are released, and the next queue publisher at this place
    /// takes over the rest at once.
    ///
    /// # Errors
    /// When the store fails. Then the next queue publisher waits until the lease ends.
    pub async fn end(&self, now: Now) -> Result<(), EngineError> {
        let _round = self.round.lock().await;
        self.state().has_ended = true;
        self.engine.offering.end(&self.settings.module);
        self.compare(now).await?;
        let never_sent = self.state().offers.never_sent(usize::MAX);
        for id in never_sent {
            self.engine.store.release(self.session, id, None, now).await?;
        }
        self.renew_for(Millis(0), now).await
    }

    pub(super) async fn renew(&self, now: Now) -> Result<(), EngineError> {
        let before = self.state().renewed_at;
        if before.is_some_and(|at| now.mono.0 < at.0 + RENEW_EVERY.0) {
            return Ok(());
        }
        self.renew_for(LEASE, now).await?;
        self.state().renewed_at = Some(now.mono);
        Ok(())
    }

    async fn renew_for(&self, lease: Millis, now: Now) -> Result<(), EngineError> {
        let worker = WorkerState {
            name: format!("queue publisher to {} at {}", self.settings.queue, self.broker.name()).into(),
            modules: vec![self.settings.module.clone()],
            ..WorkerState::default()
        };
        let is_new = self.state().renewed_at.is_none();
        let renewal = SessionRenewal {
            session: self.session,
            poll: PollState::Unknown,
            lease,
            lease_unpolled: lease,
            worker: is_new.then(|| Arc::new(worker)),
        };
        Ok(self.engine.store.renew(vec![renewal], now).await?)
    }

    /// Takes over the attempts of a queue publisher that is gone. The broker has its messages: nothing is sent again
    /// unless the messages turn out to be missing.
    pub(super) async fn go_on_with_left_behind(&self, now: Now) -> Result<(), EngineError> {
        let left_behind: Vec<AttemptId> =
            self.engine.offering.take_left_behind(&self.settings.module).into_iter().collect();
        if left_behind.is_empty() {
            return Ok(());
        }
        let adoptions = self.engine.store.adopt(self.session, &left_behind, now).await?;
        let held = left_behind.into_iter().zip(adoptions).filter(|(_, adoption)| *adoption == Adoption::Held);
        let mut state = self.state();
        held.for_each(|(id, _)| state.offers.go_on_with(id, now.mono));
        tracing::info!(module = %self.settings.module, "took over the attempts of another queue publisher");
        Ok(())
    }
}
