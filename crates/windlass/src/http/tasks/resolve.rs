//! `POST /v1/tasks/{id}/steps/{step}/resolve`: an operator settles a stuck or held step.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{Command, Resolution, Task, TaskId};

use crate::http::{
    App,
    answer::problem::Refused,
    request::{self, By, JsonBody, PARAMS_BYTES_MAX, Path, RESOLVE_BYTES_MAX, RESULT_BYTES_MAX},
    tasks::told,
};

/// [`api::ResolveStep`] as it lies in the body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolveBody<'a> {
    action: api::ResolveAction,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Settles a stuck or held step: tries it again, with other parameters if need be, skips it, takes it as done by
/// hand, or gives up.
#[utoipa::path(
    post,
    path = "/v1/tasks/{id}/steps/{step}/resolve", operation_id = "resolve_step",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "Id of the task"),
        ("step" = String, Path, description = "Name of the step"),
    ),
    request_body = api::ResolveStep,
    responses(
        (status = 200, description = "The task", body = api::Task),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown task or step", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "The step does not wait for a decision", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resolve(
    State(app): State<Arc<App>>,
    Path((id, step)): Path<(TaskId, String)>,
    By(by): By,
    JsonBody(text): JsonBody<RESOLVE_BYTES_MAX>,
) -> Result<Response, Refused> {
    let resolution = resolution(text.parse()?)?;
    let loaded = app.engine.task(id).await?;
    let step = step_of(&loaded.task, &step)?;
    told(&app, id, "resolve", Command::Resolve { step, resolution, by }).await
}

/// The index of a step by its name.
pub(in crate::http) fn step_of(task: &Task, name: &str) -> Result<usize, Refused> {
    task.flow.step_index(name).ok_or_else(|| {
        let names: Vec<&str> = task.flow.steps.iter().map(|step| step.name.as_str()).collect();
        Refused::unknown_step(format!("the task has no step {name:?}: it has {}", names.join(", ")))
    })
}

fn resolution(body: ResolveBody<'_>) -> Result<Resolution, Refused> {
    let params = |bytes_max| body.params.map(|raw| request::object("`params`", raw, bytes_max)).transpose();
    Ok(match body.action {
        api::ResolveAction::Retry => Resolution::Retry(params(PARAMS_BYTES_MAX)?),
        api::ResolveAction::Done => Resolution::Done(params(RESULT_BYTES_MAX)?),
        api::ResolveAction::Skip | api::ResolveAction::Rollback if body.params.is_some() => {
            return Err(Refused::malformed(
                "`params` goes with the actions `retry`, whose parameters they change, and `done`, whose result \
                 they are: leave them out",
            ));
        }
        api::ResolveAction::Skip => Resolution::Skip,
        api::ResolveAction::Rollback => Resolution::Rollback,
    })
}
