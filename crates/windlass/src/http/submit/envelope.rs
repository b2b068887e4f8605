//! The body of `POST /v1/tasks` in another envelope than a request: read and refused by the same code.

use sha2::{Digest as _, Sha256};
use windlass_core::{Actor, hex};
use windlass_engine::{Submission, services::Unreadable};
use windlass_store::Now;

use super::{SubmitBody, intake::TaskMessage};
use crate::http::{
    App,
    answer::problem::Refused,
    request::{self, Caller},
};

impl App {
    /// Reads a message that asks for a task, of which it is known for sure `by` whom it is. Its key counts where its
    /// document has none.
    pub(in crate::http) async fn read_task(
        &self,
        message: &TaskMessage,
        by: &str,
        now: Now,
    ) -> Result<Submission, Refused> {
        let TaskMessage { text, key, traceparent } = message;
        let body = SubmitBody::read(text)?;
        let key = key.as_deref().filter(|_| !body.has_key()).map(hashed);
        let by = Actor { name: by.into(), claimed: false };
        let traceparent = traceparent.as_deref().and_then(request::traceparent);
        let caller = Caller { traceparent, ..Caller::known(by, now) };
        let prepared = body.prepare(text, key.as_deref(), &caller)?;
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

/// Ids of messages have any length and any characters.
fn hashed(key: &str) -> String {
    hex(&Sha256::digest(key))
}
