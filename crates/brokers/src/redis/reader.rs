//! Reads that wait, and lose nothing when the call that started them is dropped.

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use crate::BrokerError;

/// The result of a read, and its connection unless that was lost.
pub(super) type Read<T> = (Option<MultiplexedConnection>, Result<T, BrokerError>);

/// Runs one read at a time over its own connection. The answer assigns messages to this consumer, so it must
/// not be lost: a read started by a dropped call continues for the next call.
pub(super) struct Reader<T> {
    connection: Option<MultiplexedConnection>,
    under_way: Option<BoxFuture<'static, Read<T>>>,
}

impl<T: Send + 'static> Reader<T> {
    pub(super) fn new() -> Self {
        Self { connection: None, under_way: None }
    }

    /// The result of the read in progress, or of a new one started by `begin`. None if the one in progress
    /// has not ended by `until`; a new one has its own time limit.
    pub(super) async fn read(
        &mut self,
        until: Instant,
        begin: impl FnOnce(Option<MultiplexedConnection>) -> BoxFuture<'static, Read<T>>,
    ) -> Option<Result<T, BrokerError>> {
        let (connection, found) = match &mut self.under_way {
            Some(read) => timeout_at(until, read).await.ok()?,
            None => self.under_way.insert(begin(self.connection.take())).await,
        };
        self.under_way = None;
        self.connection = connection;
        Some(found)
    }

    /// Waits for the read in progress. Returns the connection and the result.
    pub(super) async fn end(self) -> (Option<MultiplexedConnection>, Option<T>) {
        match self.under_way {
            Some(read) => {
                let (connection, found) = read.await;
                (connection, found.ok())
            }
            None => (self.connection, None),
        }
    }
}
