//! Tasks that come as messages.

use std::iter;

#[cfg(feature = "consul")]
use windlass_core::TaskId;
use windlass_engine::{Accepted, EngineError, Existing, Submission, services::Unreadable};
use windlass_store::Now;

use crate::http::{App, answer::problem::Refused, flows, request::BATCH_BYTES_MAX};

/// A message that asks for a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskMessage {
    /// The document of `POST /v1/tasks`.
    pub(crate) text: String,
    /// The idempotency key. `None` = the document has its own.
    pub(crate) key: Option<String>,
    /// The W3C trace context of the sender, if the document has none.
    pub(crate) traceparent: Option<String>,
}

impl App {
    /// Starts one task per message, once per idempotency key. In place of a message there may be the reason why it cannot be
    /// read. The tasks share commits of at most
    /// [`BATCH_BYTES_MAX`]. Returns one result per message, in the same order. A refused message does not affect the
    /// others.
    pub(crate) async fn take_in_all(
        &self,
        messages: Vec<Result<TaskMessage, String>>,
        by: &str,
    ) -> Vec<Result<Accepted, Unreadable>> {
        let now = self.now();
        let (mut read, mut batches) = (Vec::with_capacity(messages.len()), vec![Vec::new()]);
        let mut bytes = 0;
        for message in messages {
            let message = match message {
                Ok(message) => message,
                Err(why) => {
                    read.push(Err(Unreadable::Refused(why)));
                    continue;
                }
            };
            let submission = self.submission(&message, by, now).await.map_err(Unreadable::from);
            read.push(submission.map(|submission| {
                bytes += message.text.len();
                if bytes > BATCH_BYTES_MAX {
                    bytes = message.text.len();
                    batches.push(Vec::new());
                }
                if let Some(batch) = batches.last_mut() {
                    batch.push(submission);
                }
            }));
        }
        let mut submitted = Vec::with_capacity(read.len());
        for batch in batches.into_iter().filter(|batch| !batch.is_empty()) {
            let count = batch.len();
            match self.engine.submit_all(batch, now).await {
                Ok(accepted) => submitted.extend(accepted),
                Err(error) => submitted.extend(iter::repeat_n(Err(error), count)),
            }
        }
        let mut submitted = submitted.into_iter();
        let mut results = Vec::with_capacity(read.len());
        for read in read {
            results.push(match read.map(|()| submitted.next().unwrap_or(Err(EngineError::Conflict))) {
                Ok(Ok(accepted)) => {
                    self.note(&accepted, by);
                    Ok(accepted)
                }
                Ok(Err(error)) => Err(flows::with_versions(self, error).await.into()),
                Err(unreadable) => Err(unreadable),
            });
        }
        results
    }

    /// The same under an id that was recorded elsewhere before. Returns the id of the task that has the key: it may be
    /// another one, and may have ended and be deleted.
    #[cfg(feature = "consul")]
    pub(crate) async fn take_in_under(
        &self,
        id: TaskId,
        message: &TaskMessage,
        by: &str,
    ) -> Result<TaskId, Unreadable> {
        let submission = self.submission(message, by, self.now()).await?;
        match self.engine.submit_under(id, submission).await {
            Ok(accepted) => {
                self.note(&accepted, by);
                Ok(accepted.loaded.task.id)
            }
            Err(EngineError::KeyWithoutTask { task }) => Ok(task),
            Err(error) => Err(flows::with_versions(self, error).await.into()),
        }
    }

    /// Checks a document as far as that is possible without starting its task.
    #[cfg(feature = "consul")]
    pub(crate) async fn check_task(&self, text: &str, by: &str) -> Result<(), Unreadable> {
        let message = TaskMessage { text: text.to_owned(), ..TaskMessage::default() };
        let submission = self.read_task(&message, by, self.now()).await?;
        match self.engine.flow(&submission.flow, submission.version).await {
            Ok(_) => Ok(()),
            Err(error) => Err(flows::with_versions(self, error).await.into()),
        }
    }

    /// Reads and checks one message; it must have an idempotency key.
    async fn submission(&self, message: &TaskMessage, by: &str, now: Now) -> Result<Submission, Refused> {
        let submission = self.read_task(message, by, now).await?;
        if submission.key.is_none() {
            return Err(Refused::malformed(
                "the message has no id to recognize it by: set `key` in the configuration",
            ));
        }
        Ok(submission)
    }

    /// Counts a task that a message has started, or did not start because there is one.
    fn note(&self, accepted: &Accepted, by: &str) {
        self.metrics.submitted(accepted.existing.is_some());
        let task = accepted.loaded.task.id;
        match accepted.existing {
            None => {}
            // Brokers deliver messages again.
            Some(Existing::IdempotencyKey) => {
                tracing::debug!(%task, by, "a message started its task before");
            }
            Some(Existing::Unique) => tracing::info!(
                %task, by, "a message started no task: this one exists and has the same unique key"
            ),
        }
    }
}
