//! `POST /v1/tasks/{id}/signals/{name}`: sends a signal that a step of the task waits for.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{Command, Name, TaskId};

use crate::http::{
    App,
    answer::problem::Refused,
    request::{self, By, OptionalJsonBody, Path, RESOLVE_BYTES_MAX, RESULT_BYTES_MAX},
    tasks::told,
};

/// [`api::SendSignal`] as it lies in the body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignalBody<'a> {
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    keep: Option<bool>,
}

/// Sends a signal: the first step that waits for it is done, and returns `params`. Who sent it is in the history.
#[utoipa::path(
    post,
    path = "/v1/tasks/{id}/signals/{name}", operation_id = "send_signal",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "Id of the task"),
        ("name" = String, Path, description = "Name of the signal, as a step of the flow waits for it"),
        ("Windlass-Actor" = Option<String>, Header, description = "Who sends it, for the history"),
    ),
    request_body(content = Option<api::SendSignal>),
    responses(
        (status = 200, description = "The task", body = api::Task),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown task, or no step of it ever waits for this signal", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "The task has ended, or no step waits and the signal is not to be kept", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn send(
    State(app): State<Arc<App>>,
    Path((id, name)): Path<(TaskId, Name)>,
    By(by): By,
    OptionalJsonBody(text): OptionalJsonBody<RESOLVE_BYTES_MAX>,
) -> Result<Response, Refused> {
    let body: SignalBody<'_> = text.parse()?;
    let params = body.params.map(|raw| request::object("`params`", raw, RESULT_BYTES_MAX)).transpose()?;
    let keep = body.keep.unwrap_or(true);
    told(&app, id, "signal", Command::Signal { name, params, keep, by }).await
}
