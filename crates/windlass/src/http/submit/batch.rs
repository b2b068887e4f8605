//! `POST /v1/tasks/batch`: takes many tasks in with one commit.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_engine::{Accepted, Submission};

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    flows,
    request::{BATCH_BYTES_MAX, Caller, JsonBody},
    submit::{SubmitBody, idempotency::IdempotencyKey},
    tasks::view,
};

/// Tasks in one batch.
const TASKS_MAX: usize = 10_000;

/// [`api::SubmitBatch`] as it lies in the body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody<'a> {
    #[serde(borrow)]
    tasks: Vec<&'a RawValue>,
}

/// Accepts many tasks, each for itself: one that is refused does not stop the others.
#[utoipa::path(
    post,
    path = "/v1/tasks/batch", operation_id = "submit_batch",
    tag = "tasks",
    request_body = api::SubmitBatch,
    responses(
        (status = 200, description = "What became of each, in their order", body = api::SubmitBatchAnswer),
        (status = 400, description = "Malformed as a whole", body = api::Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = api::Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too much is waiting", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn submit(
    State(app): State<Arc<App>>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    JsonBody(text): JsonBody<BATCH_BYTES_MAX>,
) -> Result<Response, Refused> {
    if key.is_some() {
        return Err(Refused::malformed(
            "a batch has no idempotency key of its own: give each task its `key`",
        ));
    }
    let batch: BatchBody<'_> = text.parse()?;
    if batch.tasks.len() > TASKS_MAX {
        let count = batch.tasks.len();
        return Err(Refused::too_large(format!(
            "the batch has {count} tasks, and may have {TASKS_MAX}: split it"
        )));
    }
    let mut refusals = Vec::with_capacity(batch.tasks.len());
    let mut submissions = Vec::with_capacity(batch.tasks.len());
    for task in batch.tasks {
        match submission(&app, task, &caller).await {
            Ok(submission) => {
                submissions.push(submission);
                refusals.push(None);
            }
            Err(refused) => refusals.push(Some(refused)),
        }
    }
    let accepted = if submissions.is_empty() {
        Vec::new()
    } else {
        app.engine.submit_all(submissions, caller.now).await?
    };
    let mut accepted = accepted.into_iter();
    let mut results = Vec::with_capacity(refusals.len());
    for refusal in refusals {
        results.push(match refusal {
            Some(refused) => result(Err(refused)),
            None => match accepted.next() {
                Some(Ok(accepted)) => {
                    app.metrics.submitted(accepted.existing.is_some());
                    result(Ok(accepted))
                }
                Some(Err(error)) => result(Err(flows::with_versions(&app, error).await)),
                None => result(Err(Refused::fault("the engine answered fewer tasks than it was given"))),
            },
        });
    }
    Ok(ok(&api::SubmitBatchAnswer { results }))
}

async fn submission(app: &App, task: &RawValue, caller: &Caller) -> Result<Submission, Refused> {
    let prepared = SubmitBody::read(task.get())?.prepare(task.get(), None, caller)?;
    prepared.store_flow(app, caller.now).await
}

fn result(accepted: Result<Accepted, Refused>) -> api::BatchResult {
    match accepted {
        Ok(accepted) => {
            let existing = accepted.existing.map(view::existing);
            let status = if existing.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
            let id = Some(accepted.loaded.task.id.to_string());
            api::BatchResult { status: status.as_u16(), id, existing, problem: None }
        }
        Err(refused) => {
            let problem = refused.problem();
            api::BatchResult { status: problem.status, id: None, existing: None, problem: Some(problem) }
        }
    }
}
