//! Retries by the module itself, as in the classic design.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    pacing::Pacing,
    worker::{Handler, Job, Outcome, handler::run_caught},
};

/// Runs a handler again while it fails and retries are left. The timeout of the attempt covers all tries
/// together.
pub(super) struct Retrying {
    handler: Arc<dyn Handler>,
    retries: u32,
}

impl Retrying {
    pub(super) fn new(handler: Arc<dyn Handler>, retries: u32) -> Self {
        Self { handler, retries }
    }
}

#[async_trait]
impl Handler for Retrying {
    async fn run(&self, job: Job) -> Outcome {
        let mut pacing = Pacing::default();
        let mut retries = 0;
        loop {
            let failure = match run_caught(&*self.handler, job.again(retries)).await {
                Outcome::Failed(failure) if failure.retryable && retries < self.retries => failure,
                outcome => return outcome,
            };
            if job.is_cancelled() {
                return Outcome::Failed(failure);
            }
            retries += 1;
            job.log(format!("failed, retry {retries} of {} follows: {}", self.retries, failure.message));
            tokio::select! {
                () = tokio::time::sleep(pacing.failed()) => {}
                () = job.cancelled() => return Outcome::Failed(failure),
            }
        }
    }
}
