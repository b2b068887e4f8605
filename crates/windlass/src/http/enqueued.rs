//! What applications enqueue by SQL: the body of `POST /v1/tasks` in another envelope, read and refused by the same code.

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::HeaderMap;
use windlass_core::Actor;
use windlass_engine::{
    EngineError, Submission,
    ports::{Enqueued, Now},
    services::{ReadEnqueued, Unreadable},
};

use super::{
    App,
    extract::{self, SUBMIT_BYTES_MAX, bytes_in_words},
    flows, idempotency,
    problem::Refused,
    submit::{Caller, SubmitBody},
};

/// Reads what applications enqueued.
pub(crate) struct EnqueuedReader(pub(crate) Arc<App>);

#[async_trait]
impl ReadEnqueued for EnqueuedReader {
    async fn read(&self, enqueued: &Enqueued, now: Now) -> Result<Submission, Unreadable> {
        let submission = self.submission(enqueued, now).await.map_err(|refused| {
            let is_temporary = refused.is_temporary();
            let why = refused.problem().detail;
            if is_temporary { Unreadable::Later(why) } else { Unreadable::Refused(why) }
        })?;
        let key = submission.key.or_else(|| Some(idempotency::enqueued_key(enqueued.id)));
        Ok(Submission { key, ..submission })
    }

    async fn describe(&self, error: EngineError) -> String {
        flows::with_versions(&self.0, error).await.problem().detail
    }

    fn accepted(&self, repeated: bool) {
        self.0.metrics.submitted(repeated);
    }
}

impl EnqueuedReader {
    async fn submission(&self, enqueued: &Enqueued, now: Now) -> Result<Submission, Refused> {
        let text = &*enqueued.task;
        if text.len() > SUBMIT_BYTES_MAX {
            let most = bytes_in_words(SUBMIT_BYTES_MAX);
            return Err(Refused::too_large(format!(
                "the task has {} bytes, and may have {most}",
                text.len()
            )));
        }
        // The database knows who this is.
        let by = Actor { name: (*enqueued.by).into(), claimed: false };
        let prepared = extract::parse::<SubmitBody<'_>>(text)?.prepare(
            text,
            &HeaderMap::new(),
            &Caller::known(by, now.wall),
        )?;
        prepared.store_flow(&self.0, now).await
    }
}
