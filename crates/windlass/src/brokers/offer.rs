//! Ends the queue publishers of a server.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time;
use windlass_engine::services::QueuePublisher;
use windlass_store::Clock as _;

use crate::clock::SystemClock;

/// How long the round in progress may take when the server ends.
const END_MAX: Duration = Duration::from_secs(5);

/// The queue publishers of a server.
pub(crate) struct QueuePublishers {
    pub(super) publishers: Vec<Arc<QueuePublisher>>,
    pub(super) clock: Arc<SystemClock>,
}

impl QueuePublishers {
    /// Ends the queue publishers. The steps that they have published stay on the broker; the next publisher
    /// continues with them.
    pub(crate) async fn end(self) {
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
}
