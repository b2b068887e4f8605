//! What a program implements to do work.

use async_trait::async_trait;

use super::{Job, Outcome};

/// Does the work of a module's commands. One value serves all attempts, several at a time.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Does one attempt and says how it went. Ends soon after [`Job::cancelled`]: six seconds later the future is
    /// dropped. A panic is a failure that may be retried.
    async fn run(&self, job: Job) -> Outcome;
}
