//! Tasks that come as messages.

use sha2::{Digest as _, Sha256};
use windlass_core::TaskId;
use windlass_engine::{Accepted, EngineError, Existing, services::Unreadable};

use crate::http::{App, answer::problem::Refused, flows};

impl App {
    /// Starts the task that a document asks for, once for each key: what is on disk already is not started again. Without
    /// `key` the document must have one.
    pub(crate) async fn take_in(
        &self,
        text: &str,
        key: Option<&str>,
        by: &str,
    ) -> Result<Accepted, Unreadable> {
        match self.start(None, text, key, by).await? {
            Ok(accepted) => Ok(accepted),
            Err(error) => Err(flows::with_versions(self, error).await.into()),
        }
    }

    /// The same under an id that was recorded elsewhere before. Returns the id of the task that has the key: it may be
    /// another one, and may have ended and be deleted.
    #[cfg(feature = "consul")]
    pub(crate) async fn take_in_under(
        &self,
        id: TaskId,
        text: &str,
        key: &str,
        by: &str,
    ) -> Result<TaskId, Unreadable> {
        match self.start(Some(id), text, Some(key), by).await? {
            Ok(accepted) => Ok(accepted.loaded.task.id),
            Err(EngineError::KeyWithoutTask { task }) => Ok(task),
            Err(error) => Err(flows::with_versions(self, error).await.into()),
        }
    }

    /// Checks a document as far as that is possible without starting its task.
    #[cfg(feature = "consul")]
    pub(crate) async fn check_task(&self, text: &str, by: &str) -> Result<(), Unreadable> {
        let submission = self.read_task(text, None, by, self.now()).await?;
        match self.engine.flow(&submission.flow, submission.version).await {
            Ok(_) => Ok(()),
            Err(error) => Err(flows::with_versions(self, error).await.into()),
        }
    }

    async fn start(
        &self,
        id: Option<TaskId>,
        text: &str,
        key: Option<&str>,
        by: &str,
    ) -> Result<Result<Accepted, EngineError>, Refused> {
        let now = self.now();
        let submission = self.read_task(text, key.map(hashed), by, now).await?;
        if submission.key.is_none() {
            return Err(Refused::malformed(
                "the message has no id to recognize it by: set `key` in the configuration",
            ));
        }
        let submitted = match id {
            Some(id) => self.engine.submit_under(id, submission).await,
            None => self.engine.submit(submission, now).await,
        };
        if let Ok(accepted) = &submitted {
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
        Ok(submitted)
    }
}

/// Ids of messages have any length and any characters.
fn hashed(key: &str) -> String {
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}
