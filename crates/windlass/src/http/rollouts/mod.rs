//! `/v1/rollouts`: a flow for each device of a fleet.

mod definition;
mod document;

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Name, RolloutCommand};

use crate::http::{
    App,
    answer::{json_response, ok, problem::Refused},
    request::{By, ByName, ByNumber, JsonBody, OptionalJsonBody, Path, Query},
};

/// The largest document of a rollout: its parameters have 16 KiB.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// The largest body with a reason, and the longest reason.
const REASON_BYTES_MAX: usize = 8 << 10;
const REASON_MAX: usize = 1024;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, start, remove))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(abort))
        .routes(routes!(history))
}

/// The rollouts, by name, without their progress by group.
#[utoipa::path(
    get,
    path = "/v1/rollouts", operation_id = "list_rollouts",
    tag = "rollouts",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out"),
    ),
    responses((status = 200, description = "The page", body = api::List<api::Rollout>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(ByName { after, limit }): Query<ByName>,
) -> Result<Response, Refused> {
    let rollouts = app.engine.rollouts(after.as_ref(), limit).await?;
    let next = rollouts.last().filter(|_| rollouts.len() == limit);
    let next = next.map(|report| report.rollout.name.to_string());
    let items = rollouts.iter().map(|report| document::rollout(report, false)).collect();
    Ok(ok(&api::List { items, next }))
}

/// One rollout, with its progress in total and by group.
#[utoipa::path(
    get,
    path = "/v1/rollouts/{name}", operation_id = "get_rollout",
    tag = "rollouts",
    params(("name" = String, Path, description = "Name of the rollout")),
    responses(
        (status = 200, description = "The rollout", body = api::Rollout),
        (status = 404, description = "Unknown rollout", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<Name>) -> Result<Response, Refused> {
    let report = app.engine.rollout(&name).await?;
    Ok(ok(&document::rollout(&report, true)))
}

/// Starts a rollout. One that was started before with the same definition is returned as it is now.
#[utoipa::path(
    put,
    path = "/v1/rollouts/{name}", operation_id = "start_rollout",
    tag = "rollouts",
    params(("name" = String, Path, description = "Name of the rollout")),
    request_body = api::RolloutDocument,
    responses(
        (status = 201, description = "It was started", body = api::Rollout),
        (status = 200, description = "It was started before", body = api::Rollout),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown flow", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "Another rollout has the name, or there are too many", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "It cannot work: no device has the labels, for example", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
    JsonBody(text): JsonBody<DOCUMENT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let document: api::RolloutDocument = text.parse()?;
    if let Some(other) = document.rollout.as_deref().filter(|other| *other != name.as_str()) {
        return Err(Refused::malformed(format!(
            "`rollout` is {other:?}, and the path names {name}: use the same name, or leave `rollout` out"
        )));
    }
    let definition = definition::read(document)?;
    let (report, is_new) = app.engine.start_rollout(name, definition, by, app.now()).await?;
    app.metrics.command("start_rollout");
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_response(status, &document::rollout(&report, true)))
}

/// Pauses a rollout: it starts no tasks, and those that run go on.
#[utoipa::path(
    post,
    path = "/v1/rollouts/{name}/pause", operation_id = "pause_rollout",
    tag = "rollouts",
    params(("name" = String, Path, description = "Name of the rollout")),
    request_body = Option<api::ChangeRollout>,
    responses(
        (status = 200, description = "The rollout", body = api::Rollout),
        (status = 404, description = "Unknown rollout", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is paused already, being aborted, or ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
    OptionalJsonBody(text): OptionalJsonBody<REASON_BYTES_MAX>,
) -> Result<Response, Refused> {
    let reason = reason(text.parse()?)?;
    let command = RolloutCommand::Pause { by: by.clone(), reason };
    let report = app.engine.tell_rollout(&name, command, by, app.now()).await?;
    app.metrics.command("pause_rollout");
    Ok(ok(&document::rollout(&report, true)))
}

/// Resumes a paused rollout.
#[utoipa::path(
    post,
    path = "/v1/rollouts/{name}/resume", operation_id = "resume_rollout",
    tag = "rollouts",
    params(("name" = String, Path, description = "Name of the rollout")),
    responses(
        (status = 200, description = "The rollout", body = api::Rollout),
        (status = 404, description = "Unknown rollout", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not paused", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
) -> Result<Response, Refused> {
    let report = app.engine.tell_rollout(&name, RolloutCommand::Resume, by, app.now()).await?;
    app.metrics.command("resume_rollout");
    Ok(ok(&document::rollout(&report, true)))
}

/// Aborts a rollout: it starts no tasks, and cancels those that run. With `on_abort: rollback` it then rolls back those that
/// succeeded.
#[utoipa::path(
    post,
    path = "/v1/rollouts/{name}/abort", operation_id = "abort_rollout",
    tag = "rollouts",
    params(("name" = String, Path, description = "Name of the rollout")),
    request_body = Option<api::ChangeRollout>,
    responses(
        (status = 200, description = "The rollout", body = api::Rollout),
        (status = 404, description = "Unknown rollout", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is being aborted already, or ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn abort(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
    OptionalJsonBody(text): OptionalJsonBody<REASON_BYTES_MAX>,
) -> Result<Response, Refused> {
    let reason = reason(text.parse()?)?;
    let command = RolloutCommand::Abort { by: by.clone(), reason };
    let report = app.engine.tell_rollout(&name, command, by, app.now()).await?;
    app.metrics.command("abort_rollout");
    Ok(ok(&document::rollout(&report, true)))
}

/// Removes a rollout that has ended. Its tasks and its history stay.
#[utoipa::path(
    delete,
    path = "/v1/rollouts/{name}", operation_id = "remove_rollout",
    tag = "rollouts",
    params(("name" = String, Path, description = "Name of the rollout")),
    responses(
        (status = 200, description = "The rollout as it was", body = api::Rollout),
        (status = 404, description = "Unknown rollout", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has not ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
) -> Result<Response, Refused> {
    let last = app.engine.remove_rollout(&name, by, app.now()).await?;
    app.metrics.command("remove_rollout");
    Ok(ok(&document::rollout(&last, true)))
}

/// What happened to a rollout, newest first. The history stays when the rollout is removed, as long as logs are kept.
#[utoipa::path(
    get,
    path = "/v1/rollouts/{name}/history", operation_id = "list_rollout_history",
    tag = "rollouts",
    params(
        ("name" = String, Path, description = "Name of the rollout"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::RolloutEntry>),
        (status = 404, description = "There is no such rollout, and no history of one", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    Query(ByNumber { before, limit }): Query<ByNumber>,
) -> Result<Response, Refused> {
    let entries = app.engine.rollout_history(&name, before, limit).await?;
    if entries.is_empty() {
        app.engine.rollout(&name).await?;
    }
    let next = entries.last().filter(|_| entries.len() == limit).map(|(number, ..)| number.to_string());
    let items = entries.into_iter().map(|(_, at, entry)| document::entry(at, entry)).collect();
    Ok(ok(&api::List { items, next }))
}

/// The reason of an operator.
fn reason(body: api::ChangeRollout) -> Result<Option<Box<str>>, Refused> {
    match body.reason {
        Some(reason) if reason.len() > REASON_MAX => {
            Err(Refused::malformed(format!("`reason` has {} bytes: the limit is {REASON_MAX}", reason.len())))
        }
        reason => Ok(reason.filter(|reason| !reason.is_empty()).map(Into::into)),
    }
}
