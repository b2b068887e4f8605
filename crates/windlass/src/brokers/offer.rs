//! The loop of a queue publisher.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time;
use windlass_engine::{Engine, services::QueuePublisher};
use windlass_store::Clock as _;

use crate::clock::SystemClock;

/// Between two rounds where each is a round trip to a database: what became ready meanwhile goes together.
const SHARED_PAUSE: Duration = Duration::from_millis(5);

/// How long the round that is under way may take when the server ends.
const END_MAX: Duration = Duration::from_secs(5);

/// After a round that failed.
const FAILED_PAUSE: Duration = Duration::from_millis(200);

/// Offers what becomes ready, for ever.
pub(super) async fn run(publisher: Arc<QueuePublisher>, engine: Arc<Engine>, clock: Arc<SystemClock>) {
    loop {
        let pause = match publisher.run_once(clock.now()).await {
            Ok(pause) => Duration::from_millis(pause.0),
            Err(error) => {
                tracing::warn!(%error, "what is ready could not be offered; it is tried again");
                time::sleep(FAILED_PAUSE).await;
                continue;
            }
        };
        if engine.shares_its_store() {
            time::sleep(SHARED_PAUSE).await;
        }
        tokio::select! {
            () = time::sleep(pause) => {}
            () = publisher.stirred() => {}
        }
    }
}

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
