//! Starting tasks.

use std::time::Duration;

use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use windlass_api::{SubmitBatch, SubmitBatchAnswer, SubmitTask, Task};

use super::{
    Client,
    request::{ANSWER_TIMEOUT, Details, encode},
};
use crate::Error;

const PREFER: HeaderName = HeaderName::from_static("prefer");

impl Client {
    /// Starts a task. When this returns, the task is durable.
    ///
    /// With a `key` the call may be repeated after [`Error::Unreachable`]: the task starts only once.
    ///
    /// # Errors
    /// [`Error::Refused`] for an unknown flow (404), invalid parameters (400, 413, 422), a key already used
    /// for another task (422) and overload (429).
    pub async fn submit(&self, task: &SubmitTask) -> Result<Task, Error> {
        self.post(&["v1", "tasks"], task).await
    }

    /// Starts a task and lets the server wait for its end for up to `wait` (rounded up to whole seconds; a
    /// server waits for at most one minute). Returns the task in its state at that time. Use [`Client::wait`]
    /// to wait longer.
    ///
    /// # Errors
    /// As [`Client::submit`].
    pub async fn submit_and_wait(&self, task: &SubmitTask, wait: Duration) -> Result<Task, Error> {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let value = HeaderValue::try_from(format!("wait={seconds}"))
            .map_err(|error| Error::Invalid(format!("cannot ask for a wait of {seconds} s: {error}")))?;
        let details = Details {
            headers: HeaderMap::from_iter([(PREFER, value)]),
            body: Some(encode(task)?),
            timeout: Some(Duration::from_secs(seconds) + ANSWER_TIMEOUT),
            ..Details::default()
        };
        self.call(Method::POST, &["v1", "tasks"], details).await
    }

    /// Starts many tasks in one call. Each task is accepted or refused separately.
    ///
    /// # Errors
    /// [`Error::Refused`] if the batch as a whole is malformed or too large.
    pub async fn submit_batch(&self, batch: &SubmitBatch) -> Result<SubmitBatchAnswer, Error> {
        self.post(&["v1", "tasks", "batch"], batch).await
    }
}
