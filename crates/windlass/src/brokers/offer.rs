//! The end of queue publishers.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time;
use windlass_engine::services::QueuePublisher;
use windlass_store::Clock as _;

use crate::clock::SystemClock;

/// How long the round that is under way may take when the server ends.
const END_MAX: Duration = Duration::from_secs(5);

/// Those who offer steps on brokers.
pub(crate) struct QueuePublishers {
    pub(super) publishers: Vec<Arc<QueuePublisher>>,
    pub(super) clock: Arc<SystemClock>,
}

impl QueuePublishers {
    /// Ends them in order: what they offer stays offered, and whoever comes next goes on with it.
    pub(crate) async fn end(self) {
        let ends = self.publishers.iter().map(|publisher| async {
            match time::timeout(END_MAX, publisher.end(self.clock.now())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a queue publisher could not end in order"),
                Err(_) => {
                    tracing::warn!("a queue publisher could not end in order: its broker does not answer")
                }
            }
        });
        join_all(ends).await;
    }
}
