//! Functions as commands: parameters in, result out.

use std::{future::Future, marker::PhantomData};

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};

use super::{Failure, Handler, Job, Outcome};

/// A function as a handler.
pub(super) struct TypedCommand<F, P, R> {
    run: F,
    types: PhantomData<fn(P) -> R>,
}

impl<F, P, R> TypedCommand<F, P, R> {
    pub(super) fn new(run: F) -> Self {
        Self { run, types: PhantomData }
    }
}

#[async_trait]
impl<F, Fut, P, R> Handler for TypedCommand<F, P, R>
where
    F: Fn(P, Job) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    P: DeserializeOwned + Send + 'static,
    R: Serialize + 'static,
{
    async fn run(&self, job: Job) -> Outcome {
        let future = match job.params() {
            Ok(params) => (self.run)(params, job),
            Err(error) => {
                let failure = Failure::permanent(format!("the parameters do not fit the command: {error}"));
                return Outcome::Failed(failure.with_code(Failure::BAD_DATA));
            }
        };
        match future.await {
            Ok(result) => Outcome::succeeded(&result),
            Err(failure) => failure.into(),
        }
    }
}
