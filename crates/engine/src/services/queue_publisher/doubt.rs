//! Whether the broker has what it was given.

use windlass_brokers::{BrokerError, Progress};
use windlass_core::Millis;
use windlass_store::Now;

use crate::{
    EngineError,
    services::queue_publisher::{QueuePublisher, RESULTS_GROUP, offers::Seen},
};

/// The broker seems to have lost messages. Consumers may have acknowledged them as well, if their answers wait to be
/// read: nothing is concluded before every answer is read that was there.
pub(super) struct Doubt {
    seen: Seen,
    /// When the queue was looked at.
    at: Millis,
    /// Where the answers ended after that. A consumer acknowledges a message once its answer is confirmed.
    answers: Progress,
}

impl QueuePublisher {
    /// Looks whether the broker has what it was given, and what is to be sent again.
    pub(super) async fn look(&self, now: Now) -> Result<(), EngineError> {
        match self.try_look(now).await {
            Ok(None) => Ok(()),
            Ok(Some(doubt)) => {
                // What the answers said is in the store.
                self.compare(now).await?;
                let found = self.state().offers.find_missing(&doubt.seen, doubt.at);
                if let Some(count) = found {
                    let (queue, module) = (&self.settings.queue, &self.settings.module);
                    tracing::warn!(%queue, %module, count, "the broker does not have what it was given: it is sent again");
                }
                Ok(())
            }
            Err(error) => {
                self.has_failed(&error, now);
                Ok(())
            }
        }
    }

    /// Looks at the queue, or how far the answers are read where that is still to be waited for. Returns what can be
    /// concluded from now.
    async fn try_look(&self, now: Now) -> Result<Option<Doubt>, BrokerError> {
        if self.state().doubt.is_none() {
            let Some(seen) = self.see(now).await? else { return Ok(None) };
            let answers = self.answers().await?;
            self.state().doubt = Some(Doubt { seen, at: now.mono, answers });
        }
        let answers = self.answers().await?;
        Ok(self.state().doubt.take_if(|doubt| answers.has_settled(&doubt.answers)))
    }

    /// Looks at the queue. Returns what is seen where that gives cause for doubt.
    async fn see(&self, now: Now) -> Result<Option<Seen>, BrokerError> {
        // A broker that takes nothing is asked even so: nothing else would show that it is there again.
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
