//! Retries by the module itself, as in the classic design.

use std::{panic::AssertUnwindSafe, sync::Arc};

use async_trait::async_trait;
use futures_util::FutureExt;

use crate::{
    pacing::Pacing,
    worker::{Failure, Handler, Job, Outcome},
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
            // A panic drops the handler's state, so nobody sees it afterwards.
            let run = AssertUnwindSafe(self.handler.run(job.again(retries))).catch_unwind();
            let outcome = run.await.unwrap_or_else(|panic| Outcome::Failed(Failure::of_panic(&*panic)));
            let failure = match outcome {
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
