//! Checks whether the broker still has the messages that it received.

use windlass_brokers::{BrokerError, Progress};
use windlass_core::Millis;
use windlass_store::{AttemptId, Now};

use crate::{
    EngineError, HandedOut,
    deciding::inbox::{Item, Loss},
    services::queue_publisher::{
        QueuePublisher, RESULTS_GROUP,
        offers::{Missing, Seen},
    },
};

/// The broker seems to have lost messages. Alternatively consumers have acknowledged them and their answers wait to be
/// read: so nothing is concluded before all answers of that time are read.
pub(super) struct Doubt {
    seen: Seen,
    /// When the queue was inspected.
    at: Millis,
    /// The end of the answers after that. A consumer acknowledges a message once its answer is confirmed.
    answers: Progress,
}

impl QueuePublisher {
    /// Checks whether the broker still has the messages it received, and marks lost ones to be sent again. Returns whether
    /// the broker has answered.
    pub(super) async fn look(&self, now: Now) -> Result<bool, EngineError> {
        match self.try_look(now).await {
            Ok(None) => Ok(true),
            Ok(Some(doubt)) => {
                // The effects of the answers are in the store.
                self.compare(now).await?;
                let Missing { again, unanswered } = self.state().offers.find_missing(&doubt.seen, doubt.at);
                let (queue, module) = (&self.settings.queue, &self.settings.module);
                if again > 0 {
                    tracing::warn!(%queue, %module, count = again, "messages are missing: the broker lost them, or a module took them and did not answer; sending them again");
                }
                if !unanswered.is_empty() {
                    let count = unanswered.len();
                    tracing::warn!(%queue, %module, count, "messages were taken several times, and no answer came: their attempts are lost");
                    self.lose(&unanswered).await?;
                }
                Ok(true)
            }
            Err(error) => {
                self.has_failed(&error, now);
                Ok(false)
            }
        }
    }

    /// Ends attempts whose messages were taken too often without an answer, as if their workers were dead.
    async fn lose(&self, unanswered: &[AttemptId]) -> Result<(), EngineError> {
        let held = self.engine.store.held(self.session).await?;
        let lost = held.into_iter().filter(|claimed| unanswered.contains(&claimed.id));
        let items = lost.map(|claimed| Item::Lost { claimed, loss: Loss::Unanswered });
        self.engine.inbox.decide(self.engine.without_damaged(items)).await?;
        Ok(())
    }

    /// Claims an attempt that shows whether a broker that can be inspected accepts messages again. Nothing else would show
    /// it while all messages that were sent wait there. Without a ready attempt the failure is over.
    pub(super) async fn claim_probe(&self, now: Now) -> Result<Vec<HandedOut>, EngineError> {
        let probe = self.claim(1, now).await?;
        if probe.is_empty() {
            self.trouble.ends();
        }
        Ok(probe)
    }

    /// Inspects the queue, or, after a doubt, how far the answers are read. Returns the doubt once all its answers are
    /// read.
    async fn try_look(&self, now: Now) -> Result<Option<Doubt>, BrokerError> {
        if self.state().doubt.is_none() {
            let Some(seen) = self.see(now).await? else { return Ok(None) };
            let answers = self.answers().await?;
            self.state().doubt = Some(Doubt { seen, at: now.mono, answers });
        }
        let answers = self.answers().await?;
        Ok(self.state().doubt.take_if(|doubt| answers.has_settled(&doubt.answers)))
    }

    /// Inspects the queue. Returns the result if it gives cause for doubt.
    async fn see(&self, now: Now) -> Result<Option<Seen>, BrokerError> {
        // A failing broker is inspected as well: nothing else would show that it works again.
        if self.state().offers.is_empty() && !self.trouble.is_known() {
            return Ok(None);
        }
        let seen = match self.broker.look(&self.settings.queue).await {
            Ok(look) => Seen::Queue(look),
            Err(BrokerError::NoQueue(_)) => Seen::Gone,
            Err(error) => return Err(error),
        };
        let mut state = self.state();
        if state.offers.is_empty() {
            return Ok(None);
        }
        Ok(state.offers.is_doubtful(&seen, now.mono).then_some(seen))
    }

    /// How far the answers of modules are read.
    async fn answers(&self) -> Result<Progress, BrokerError> {
        match self.broker.progress(&self.settings.results, RESULTS_GROUP).await {
            Err(BrokerError::NoQueue(_)) => Ok(Progress::NOTHING),
            progress => progress,
        }
    }
}
