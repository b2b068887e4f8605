//! Tasks that come as messages.

use sha2::{Digest as _, Sha256};
use windlass_engine::{Existing, services::Unreadable};

use crate::http::{App, answer::problem::Refused, flows};

impl App {
    /// Starts the task that a document asks for, once for each key: what is on disk already is not started again. Without
    /// `key` the document must have one.
    pub(crate) async fn take_in(&self, text: &str, key: Option<&str>, by: &str) -> Result<(), Unreadable> {
        Ok(self.start(text, key, by).await?)
    }

    async fn start(&self, text: &str, key: Option<&str>, by: &str) -> Result<(), Refused> {
        let now = self.now();
        let submission = self.read_task(text, key.map(hashed), by, now).await?;
        if submission.key.is_none() {
            return Err(Refused::malformed(
                "the message has no id to recognize it by: set `key` in the configuration",
            ));
        }
        match self.engine.submit(submission, now).await {
            Ok(accepted) => {
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
                Ok(())
            }
            Err(error) => Err(flows::with_versions(self, error).await),
        }
    }
}

/// Ids of messages have any length and any characters.
fn hashed(key: &str) -> String {
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}
