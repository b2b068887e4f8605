//! The body of `POST /v1/tasks` in another envelope than a request: read and refused by the same code.

use windlass_core::Actor;
use windlass_engine::{Submission, services::Unreadable};
use windlass_store::Now;

use crate::http::{App, answer::problem::Refused, request::Caller, submit::SubmitBody};

impl App {
    /// Reads the document of a task, of which it is known for sure `by` whom it is. `key` counts where it has no
    /// idempotency key of its own.
    pub(in crate::http) async fn read_task(
        &self,
        text: &str,
        key: Option<String>,
        by: &str,
        now: Now,
    ) -> Result<Submission, Refused> {
        let body = SubmitBody::read(text)?;
        let key = key.filter(|_| !body.has_key());
        let by = Actor { name: by.into(), claimed: false };
        let prepared = body.prepare(text, key.as_deref(), &Caller::known(by, now))?;
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
