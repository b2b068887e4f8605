//! What applications enqueue by SQL.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_engine::{
    EngineError, Submission,
    services::{ReadEnqueued, Unreadable},
};
use windlass_store::{Enqueued, Now, Standing};

use super::intake::TaskMessage;
use crate::http::{App, answer::problem::Refused, flows, submit::idempotency};

/// The refusal for a task that is not there: of one that was enqueued it says what has become of it.
pub(in crate::http) async fn or_enqueued(app: &App, error: EngineError) -> Refused {
    let EngineError::UnknownTask(id) = error else { return error.into() };
    let enqueued = format!("there is no task {id}: it was enqueued by SQL");
    match app.engine.standing(id).await {
        Ok(Some(Standing::Waits)) => Refused::unknown_task(format!(
            "{enqueued}, and no server has taken it in yet: ask again in a moment"
        )),
        Ok(Some(Standing::StandsFor(task))) => {
            Refused::unknown_task(format!("{enqueued}, and is deduplicated to task {task}: ask for that one"))
        }
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
        // The database knows who this is.
        let message = TaskMessage { text: enqueued.task.to_string(), ..TaskMessage::default() };
        let submission = self.0.read_task(&message, &enqueued.by, now).await?;
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
