//! The interface of programs that run steps.

use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use futures_util::FutureExt;

use super::{Failure, Job, Outcome};

/// Runs the commands of a module. One value handles all attempts, several at a time.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one attempt and returns its outcome. It must end soon after [`Job::cancelled`]: six seconds later
    /// the future is dropped. A panic is a retryable failure.
    async fn run(&self, job: Job) -> Outcome;
}

/// Runs one attempt; a panic is its failure.
pub(super) async fn run_caught(handler: &dyn Handler, job: Job) -> Outcome {
    // A panic drops the handler's state, so nobody sees it afterwards.
    let ended = AssertUnwindSafe(handler.run(job)).catch_unwind().await;
    ended.unwrap_or_else(|panic| Outcome::Failed(Failure::of_panic(&*panic)))
}
