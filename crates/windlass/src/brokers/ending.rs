//! Ends the parts of a server that must not simply be cut off: its queue publishers, its outbox relay, and its elected
//! intakes.

use std::sync::Arc;

use futures_util::future::{join_all, join3};
use tokio::{sync::watch, time};
use windlass_engine::{
    EngineError,
    services::{OutboxRelay, QueuePublisher},
};
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
    /// Ends the queue publishers, the outbox relay and the elected intakes. The steps that are published stay on the
    /// broker: the next publisher continues with them. No event that was announced is announced again. The next server is
    /// elected for the intakes at once.
    pub(crate) async fn end(self) {
        join3(self.end_publishers(), self.end_relay(), self.end_intakes()).await;
    }

    async fn end_publishers(&self) {
        let now = self.clock.now();
        let ends = self.publishers.iter().map(|publisher| in_time("a queue publisher", publisher.end(now)));
        join_all(ends).await;
    }

    async fn end_relay(&self) {
        if let Some(relay) = &self.relay {
            in_time("the outbox relay", relay.end(self.clock.now())).await;
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

/// Waits for the end of a part, but not longer than [`END_MAX`].
async fn in_time(part: &str, end: impl Future<Output = Result<(), EngineError>>) {
    match time::timeout(END_MAX, end).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "{part} did not end cleanly"),
        Err(_) => tracing::warn!("{part} did not end cleanly: its broker does not answer"),
    }
}
