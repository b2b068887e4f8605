//! Checks whether the broker still has the messages that it received.

use windlass_brokers::{BrokerError, Progress};
use windlass_core::Millis;
use windlass_store::Now;

use crate::{
    EngineError,
    services::queue_publisher::{QueuePublisher, RESULTS_GROUP, offers::Seen},
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
    /// Checks whether the broker still has the messages it received, and marks lost ones to be sent again.
    pub(super) async fn look(&self, now: Now) -> Result<(), EngineError> {
        match self.try_look(now).await {
            Ok(None) => Ok(()),
            Ok(Some(doubt)) => {
                // The effects of the answers are in the store.
                self.compare(now).await?;
                let found = self.state().offers.find_missing(&doubt.seen, doubt.at);
                if let Some(count) = found {
                    let (queue, module) = (&self.settings.queue, &self.settings.module);
                    tracing::warn!(%queue, %module, count, "the broker lost messages: sending them again");
                }
                Ok(())
            }
            Err(error) => {
                self.has_failed(&error, now);
                Ok(())
            }
        }
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
            self.trouble.ends();
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
