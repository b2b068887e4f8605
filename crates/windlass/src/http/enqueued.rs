//! What applications enqueue by SQL: the body of `POST /v1/tasks` in another envelope, read and refused by the same code.

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::HeaderMap;
use windlass_core::Actor;
use windlass_engine::{
    EngineError, Submission,
    ports::{Enqueued, Now, Standing},
    services::{ReadEnqueued, Unreadable},
};

use super::{
    App,
    extract::{self, SUBMIT_BYTES_MAX, bytes_in_words},
    flows, idempotency,
    problem::Refused,
    submit::{Caller, SubmitBody},
};

/// The refusal for a task that is not there: of one that was enqueued it says what has become of it.
pub(super) async fn or_enqueued(app: &App, error: EngineError) -> Refused {
    let EngineError::UnknownTask(id) = error else { return error.into() };
    let enqueued = format!("there is no task {id}: it was enqueued by SQL");
    match app.engine.standing(id).await {
        Ok(Some(Standing::Waits)) => Refused::unknown_task(format!(
            "{enqueued}, and no server has taken it in yet: ask again in a moment"
        )),
        Ok(Some(Standing::StandsFor(task))) => Refused::unknown_task(format!(
            "{enqueued}, and task {task}, which is the same, stands for it: ask for that one"
        )),
        Ok(Some(Standing::Refused(why))) => Refused::unknown_task(format!(
            "{enqueued} and refused: {why}; when that is put right, set `refused` of its row in windlass_enqueued to NULL"
        )),
        // Where it cannot be asked for what is known stays what it was.
        Ok(None) | Err(_) => error.into(),
    }
}

/// Reads what applications enqueued.
pub(crate) struct EnqueuedReader(pub(crate) Arc<App>);

#[async_trait]
impl ReadEnqueued for EnqueuedReader {
    async fn read(&self, enqueued: &Enqueued, now: Now) -> Result<Submission, Unreadable> {
        let submission = self.submission(enqueued, now).await?;
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

/// What nobody waits for is read again later, or never.
impl From<Refused> for Unreadable {
    fn from(refused: Refused) -> Self {
        let is_temporary = refused.is_temporary();
        let why = refused.problem().detail;
        if is_temporary { Self::Later(why) } else { Self::Refused(why) }
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
