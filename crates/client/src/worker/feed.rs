//! Where attempts come from beside the polls.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_api::Attempt;

use super::{Handler, Token};

/// Brings attempts that the worker must take before it runs them, and hears what became of each.
#[async_trait]
pub(super) trait Feed: Send {
    /// Waits for attempts that were not brought before. Dropping the call loses none.
    async fn arrived(&mut self) -> Vec<Attempt>;

    /// How many more are wanted now.
    fn want(&mut self, free: u32);

    /// What runs this attempt, if that handler is the one of its command.
    fn handler(&self, token: &Token, handler: Arc<dyn Handler>) -> Arc<dyn Handler>;

    /// Nothing more is to be done about this attempt: it need not come again.
    fn settle(&mut self, token: &Token);

    /// This attempt is for another worker.
    fn give_back(&mut self, token: &Token);

    /// Sees to it that what was settled and given back is known, and ends.
    async fn close(self: Box<Self>);
}
