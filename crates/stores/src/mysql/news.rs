//! Learns of other servers: MySQL notifies nobody, so the engine looks in intervals.

use std::time::Duration;

use crate::rows;

/// How often other servers are looked for.
const EVERY: Duration = Duration::from_millis(200);

/// How often a server that has ended is looked for. Heartbeats look too, every second, so this is once between two of them.
const ENDED_EVERY: Duration = Duration::from_millis(500);

/// The interval in which news is looked for.
pub(crate) struct News;

impl rows::News for News {
    async fn next(&self) {
        tokio::time::sleep(EVERY).await;
    }

    async fn enqueued(&self) {
        self.next().await;
    }

    async fn released(&self) {
        tokio::time::sleep(ENDED_EVERY).await;
    }
}
