//! The interface of programs that run steps.

use async_trait::async_trait;

use super::{Job, Outcome};

/// Runs the commands of a module. One value handles all attempts, several at a time.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one attempt and returns its outcome. It must end soon after [`Job::cancelled`]: six seconds later
    /// the future is dropped. A panic is a retryable failure.
    async fn run(&self, job: Job) -> Outcome;
}
