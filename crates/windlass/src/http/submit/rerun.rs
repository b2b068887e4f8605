//! `POST /v1/tasks/{id}/rerun`: a task that has ended is run again, from one of its steps on.

use std::{borrow::Cow, sync::Arc};

use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{Json, TaskId};
use windlass_engine::Rerun;

use crate::http::{
    App,
    answer::problem::Refused,
    request::{self, Caller, OptionalJsonBody, PARAMS_BYTES_MAX, Path, SUBMIT_BYTES_MAX, bytes_in_words},
    submit::{
        self,
        idempotency::{self, IdempotencyKey, Keyed},
    },
    tasks::resolve::step_of,
};

/// [`api::RerunTask`] as it lies in the body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RerunBody<'a> {
    #[serde(borrow, default)]
    from: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    #[serde(default)]
    override_unique: bool,
}

/// Runs a task that has ended again: a new task of the same flow version begins at the step `from`, with the results
/// of the steps that are not after it, as far as the old task has done them.
///
/// Where the flow is `unique` and another task has the new one's unique key, no task is started and that one is returned,
/// unless the body has `override_unique: true`.
#[utoipa::path(
    post,
    path = "/v1/tasks/{id}/rerun", operation_id = "rerun_task",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "Id of the task that has ended"),
        ("Idempotency-Key" = Option<String>, Header, description = "The same thing as `key` in the body; at most 255 bytes"),
        ("Windlass-Actor" = Option<String>, Header, description = "Who asks for it, for the history"),
    ),
    request_body(content = Option<api::RerunTask>),
    responses(
        (status = 202, description = "The new task", body = api::Task,
            headers(("Location" = String), ("Retry-After" = u32))),
        (status = 200, description = "No task was started, because one exists with this idempotency key or the same unique key: `existing` says which", body = api::Task,
            headers(("Location" = String), ("Windlass-Existing" = String))),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown task or step", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "The task has not ended, or a step that would be taken over was rolled back", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "The key was used with another body", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rerun(
    State(app): State<Arc<App>>,
    Path(id): Path<TaskId>,
    caller: Caller,
    IdempotencyKey(header): IdempotencyKey,
    OptionalJsonBody(text): OptionalJsonBody<SUBMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let body: RerunBody<'_> = text.parse()?;
    let params = body.params.map(|raw| request::object("`params`", raw, PARAMS_BYTES_MAX)).transpose()?;
    let key = idempotency::key(header.as_deref(), body.key.as_deref())?;
    let old = app.engine.task(id).await?.task;
    check_together(&old.input.params, params.as_ref())?;
    let key = key.map(|key| idempotency::rerun_key(key, id, body.from.as_deref(), params.as_ref()));
    let (key, fingerprint_before) = key.map(Keyed::into_parts).unzip();
    let rerun = Rerun {
        from: body.from.as_deref().map(|from| step_of(&old, from)).transpose()?,
        key,
        fingerprint_before,
        params,
        overrides_unique: body.override_unique,
        by: caller.by,
        traceparent: caller.traceparent,
    };
    let accepted = app.engine.rerun(id, rerun, caller.now).await?;
    app.metrics.submitted(accepted.existing.is_some());
    submit::answer(&app, &accepted, None).await
}

/// The new task's parameters are those of the old one and these: together no more than may be submitted.
fn check_together(old: &Json, new: Option<&Json>) -> Result<(), Refused> {
    let Some(new) = new else { return Ok(()) };
    let bytes = Json::merge([old, new]).as_str().len();
    if bytes <= PARAMS_BYTES_MAX {
        return Ok(());
    }
    let most = bytes_in_words(PARAMS_BYTES_MAX);
    Err(Refused::too_large(format!(
        "with those of the old task `params` has {bytes} bytes, and may have {most}"
    )))
}
