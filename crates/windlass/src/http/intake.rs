//! Tasks that come as messages: the body of `POST /v1/tasks` in another envelope, read and refused by the same code.

use axum::http::{HeaderMap, HeaderValue};
use sha2::{Digest as _, Sha256};
use windlass_core::Actor;
use windlass_engine::services::Unreadable;

use super::{
    App,
    extract::{self, SUBMIT_BYTES_MAX, bytes_in_words},
    flows,
    problem::Refused,
    submit::{Caller, SubmitBody},
};

impl App {
    /// Starts the task that a document asks for, once for each key: what is on disk already is not started again.
    pub(crate) async fn take_in(&self, text: &str, key: &str, by: &str) -> Result<(), Unreadable> {
        Ok(self.start(text, key, by).await?)
    }

    async fn start(&self, text: &str, key: &str, by: &str) -> Result<(), Refused> {
        if text.len() > SUBMIT_BYTES_MAX {
            let most = bytes_in_words(SUBMIT_BYTES_MAX);
            return Err(Refused::too_large(format!(
                "the message has {} bytes, and may have {most}",
                text.len()
            )));
        }
        let body = extract::parse::<SubmitBody<'_>>(text)?;
        let mut headers = HeaderMap::new();
        if !body.has_key() {
            // Ids of messages are of any length and of any characters.
            let key: String = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
            headers.insert(
                "idempotency-key",
                HeaderValue::try_from(key).map_err(|_| Refused::fault("a hash is text"))?,
            );
        }
        let now = self.now();
        let by = Actor { name: by.into(), claimed: false };
        let prepared = body.prepare(text, &headers, &Caller::known(by, now.wall))?;
        let submission = prepared.store_flow(self, now).await?;
        match self.engine.submit(submission, now).await {
            Ok(accepted) => {
                self.metrics.submitted(accepted.repeated);
                Ok(())
            }
            Err(error) => Err(flows::with_versions(self, error).await),
        }
    }
}
