//! Sources of attempts other than polls.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_api::Attempt;

use super::{Handler, Token};

/// Brings attempts that the worker must claim before it runs them, and receives the end of each.
#[async_trait]
pub(super) trait Feed: Send {
    /// Waits for new attempts. Dropping the future loses none.
    async fn arrived(&mut self) -> Vec<Attempt>;

    /// Sets how many more attempts are wanted now.
    fn want(&mut self, free: u32);

    /// The handler for this attempt, given the handler of its command.
    fn handler(&self, token: &Token, handler: Arc<dyn Handler>) -> Arc<dyn Handler>;

    /// This attempt is finished: it need not come again.
    fn settle(&mut self, token: &Token);

    /// Returns this attempt, for another worker.
    fn give_back(&mut self, token: &Token);

    /// Completes all settled and returned attempts, and ends.
    async fn close(self: Box<Self>);
}
