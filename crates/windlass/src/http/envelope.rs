//! The body of `POST /v1/tasks` in another envelope than a request: read and refused by the same code.

use axum::http::{HeaderMap, HeaderValue};
use windlass_core::Actor;
use windlass_engine::{Submission, ports::Now, services::Unreadable};

use super::{
    App,
    extract::{self, SUBMIT_BYTES_MAX, bytes_in_words},
    idempotency,
    problem::Refused,
    submit::{Caller, SubmitBody},
};

impl App {
    /// Reads the document of a task, of which it is known for sure `by` whom it is. `key` counts where it has no
    /// idempotency key of its own.
    pub(super) async fn read_task(
        &self,
        text: &str,
        key: Option<HeaderValue>,
        by: &str,
        now: Now,
    ) -> Result<Submission, Refused> {
        if text.len() > SUBMIT_BYTES_MAX {
            let most = bytes_in_words(SUBMIT_BYTES_MAX);
            return Err(Refused::too_large(format!(
                "the task has {} bytes, and may have {most}",
                text.len()
            )));
        }
        let body = extract::parse::<SubmitBody<'_>>(text)?;
        let key = key.filter(|_| !body.has_key());
        let headers = key.map(|key| (idempotency::HEADER, key)).into_iter().collect::<HeaderMap>();
        let by = Actor { name: by.into(), claimed: false };
        let prepared = body.prepare(text, &headers, &Caller::known(by, now.wall))?;
        prepared.store_flow(self, now).await
    }
}

/// What nobody waits for is read again later, or never.
impl From<Refused> for Unreadable {
    fn from(refused: Refused) -> Self {
        let is_temporary = refused.is_temporary();
        let why = refused.problem().detail;
        if is_temporary { Self::Later(why) } else { Self::Refused(why) }
    }
}
