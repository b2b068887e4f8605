//! `/v1/tasks`: looking at tasks and steering them. Submits are in `submit.rs`, decisions about steps in `resolve.rs`.

mod bulk;
pub(super) mod classic;
pub(super) mod classic_queue;
mod counts;
mod current;
pub(super) mod events;
mod list;
mod logs;
mod members;
pub(super) mod resolve;
mod signals;
pub(crate) mod view;
pub(super) mod wait;
mod why;

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Command, TaskId, Timestamp, hex};
use windlass_store::Loaded;

use crate::http::{
    App,
    answer::{bytes_response, ok, problem::Refused},
    request::{By, FromQuery, OptionalJsonBody, Pairs, Path, Query, SUBMIT_BYTES_MAX},
    submit::{self, enqueued},
    tasks::{classic::ClassicTask, classic_queue::ClassicQueue, view::Overlay},
};

pub(super) use list::{ListQuery, cursor};

/// Its routes.
pub(in crate::http) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list::list, submit::submit))
        .routes(routes!(submit::batch::submit))
        .routes(routes!(bulk::change))
        .routes(routes!(counts::count))
        .routes(routes!(show))
        .routes(routes!(cancel))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(resolve::resolve))
        .routes(routes!(members::list))
        .routes(routes!(submit::rerun::rerun))
        .routes(routes!(signals::send))
        .routes(routes!(events::events))
        .routes(routes!(logs::logs))
        .routes(routes!(why::why))
}

/// How a task is shown.
pub(crate) enum View {
    Task,
    Classic,
}

impl FromQuery for View {
    const NAMES: &'static [&'static str] = &["view"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        match pairs.one("view")? {
            None => Ok(Self::Task),
            Some("classic") => Ok(Self::Classic),
            Some(other) => Err(Refused::malformed(format!("\"view\" is {other:?}, and can be classic"))),
        }
    }
}

/// One task with its steps.
#[utoipa::path(
    get,
    path = "/v1/tasks/{id}", operation_id = "get_task",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "Id of the task"),
        ("view" = Option<String>, Query, description = "`classic`: the document of the classic system"),
        ("If-None-Match" = Option<String>, Header, description = "`ETag` of the document that is known"),
    ),
    responses(
        (status = 200, description = "The task; with `view=classic` a ClassicTask, or a ClassicQueue if each step is a job of a device", body = api::Task, headers(("ETag" = String))),
        (status = 304, description = "It is as it was"),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Path(id): Path<TaskId>,
    Query(view): Query<View>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let loaded = match app.engine.task(id).await {
        Ok(loaded) => loaded,
        Err(error) => return Err(enqueued::or_enqueued(&app, error).await),
    };
    Ok(match view {
        View::Classic => match ClassicQueue::of(&loaded.task).await {
            Some(queue) => tagged(&headers, &loaded, &queue),
            None => tagged(&headers, &loaded, &ClassicTask::new(&loaded)),
        },
        View::Task => tagged(&headers, &loaded, &view::task(&loaded, &Overlay::of(&app, &loaded).await?)),
    })
}

/// The document with its `ETag`, or 304 when the client has it. The tag begins with the task's version; what is
/// laid over the stored task (who has it, how far it is) changes without one, so the tag has a hash of all.
fn tagged(headers: &HeaderMap, loaded: &Loaded, document: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    let hash = Sha256::digest(&bytes);
    let short = hex(&hash[..8]);
    let tag = format!("\"{}-{short}\"", loaded.task.state.events);
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag);
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => bytes_response(StatusCode::OK, bytes.into()),
    };
    response.headers_mut().extend(HeaderValue::try_from(tag).map(|tag| (header::ETAG, tag)));
    response
}

/// Cancels a task: nothing new starts, running attempts get a stop request, and the steps that have begun are rolled back.
#[utoipa::path(
    post,
    path = "/v1/tasks/{id}/cancel", operation_id = "cancel_task",
    tag = "tasks",
    params(("id" = String, Path, description = "Id of the task")),
    responses(
        (status = 200, description = "The task", body = api::Task),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Path(id): Path<TaskId>,
    By(by): By,
) -> Result<Response, Refused> {
    told(&app, id, "cancel", Command::Cancel { by }).await
}

/// Holds a task: nothing new starts. What runs may end, or workers stop it with `stop: true`.
#[utoipa::path(
    post,
    path = "/v1/tasks/{id}/pause", operation_id = "pause_task",
    tag = "tasks",
    params(("id" = String, Path, description = "Id of the task")),
    request_body(content = Option<api::PauseTask>),
    responses(
        (status = 200, description = "The task", body = api::Task),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    Path(id): Path<TaskId>,
    By(by): By,
    OptionalJsonBody(text): OptionalJsonBody<SUBMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let api::PauseTask { stop } = text.parse()?;
    match stop {
        true => told(&app, id, "stop", Command::Stop { by }).await,
        false => told(&app, id, "pause", Command::Pause { by }).await,
    }
}

/// Lets a paused task go on.
#[utoipa::path(
    post,
    path = "/v1/tasks/{id}/resume", operation_id = "resume_task",
    tag = "tasks",
    params(("id" = String, Path, description = "Id of the task")),
    responses(
        (status = 200, description = "The task", body = api::Task),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended, or workers are still stopping attempts", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Path(id): Path<TaskId>,
    By(by): By,
) -> Result<Response, Refused> {
    told(&app, id, "resume", Command::Resume { by }).await
}

/// Sends a command to a task, and answers with the task.
pub(in crate::http) async fn told(
    app: &App,
    id: TaskId,
    kind: &'static str,
    command: Command,
) -> Result<Response, Refused> {
    let loaded = app.engine.tell(id, command).await?;
    app.metrics.command(kind);
    Ok(ok(&view::task(&loaded, &Overlay::of(app, &loaded).await?)))
}
