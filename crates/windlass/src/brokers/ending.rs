//! Ends the parts of a server that must not simply be cut off: its queue publishers, its outbox relay, and its elected
//! intakes.

use std::sync::Arc;

use futures_util::future::{join_all, join3};
use tokio::{sync::watch, time};
use windlass_engine::services::{OutboxRelay, QueuePublisher};
use windlass_store::Clock as _;

use crate::{clock::SystemClock, loops::END_MAX};

/// The parts of a server that it ends before its loops.
pub(crate) struct Ending {
    pub(super) publishers: Vec<Arc<QueuePublisher>>,
    pub(super) relay: Option<Arc<OutboxRelay>>,
    /// Set when elected intakes must end. Each drops its receiver when it has ended.
    pub(super) intakes: watch::Sender<bool>,
    pub(super) clock: Arc<SystemClock>,
}

impl Ending {
    /// Ends the queue publishers, the outbox relay and the elected intakes. The steps that are published stay on the broker: the next
    /// publisher continues with them. The next server is elected for the intakes at once.
    pub(crate) async fn end(self) {
        join3(self.end_publishers(), self.end_relay(), self.end_intakes()).await;
    }

    async fn end_publishers(&self) {
        let ends = self.publishers.iter().map(|publisher| async {
            match time::timeout(END_MAX, publisher.end(self.clock.now())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a queue publisher did not end cleanly"),
                Err(_) => {
                    tracing::warn!("a queue publisher did not end cleanly: its broker does not answer")
                }
            }
        });
        join_all(ends).await;
    }

    async fn end_relay(&self) {
        let Some(relay) = &self.relay else { return };
        match time::timeout(END_MAX, relay.end(self.clock.now())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the outbox relay did not end cleanly: some events are announced again");
            }
            Err(_) => tracing::warn!(
                "the outbox relay did not end cleanly: a subscriber does not answer, and some events are announced again"
            ),
        }
    }

    async fn end_intakes(&self) {
        self.intakes.send_replace(true);
        if time::timeout(END_MAX, self.intakes.closed()).await.is_err() {
            tracing::warn!(
                "an intake did not end cleanly: the next server is elected when the lease is over"
            );
        }
    }
}
