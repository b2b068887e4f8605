//! Reads that wait, and lose nothing when the call that began them is dropped.

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use crate::BrokerError;

/// What a read found, and the connection, unless it was lost.
pub(super) type Read<T> = (Option<MultiplexedConnection>, Result<T, BrokerError>);

/// One read at a time over a connection of its own. The server hands messages out with the answer, so an answer must
/// find somebody: a read that a dropped call began is the next call's.
pub(super) struct Reader<T> {
    connection: Option<MultiplexedConnection>,
    under_way: Option<BoxFuture<'static, Read<T>>>,
}

impl<T: Send + 'static> Reader<T> {
    pub(super) fn new() -> Self {
        Self { connection: None, under_way: None }
    }

    /// What the read under way finds, or the one that `begin` begins. Nothing when the one under way has not ended by
    /// then; one that this call begins knows itself how long to wait.
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

    /// Ends: the connection, when the read under way is over, and what that found.
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
