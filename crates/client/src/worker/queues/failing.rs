//! The handler for an attempt that cannot run.

use async_trait::async_trait;

use crate::worker::{Failure, Handler, Job, Outcome};

/// Fails with the fault of the attempt.
pub(super) struct Failing(Failure);

impl Failing {
    pub(super) fn new(fault: Failure) -> Self {
        Self(fault)
    }
}

#[async_trait]
impl Handler for Failing {
    async fn run(&self, _job: Job) -> Outcome {
        Outcome::Failed(self.0.clone())
    }
}
