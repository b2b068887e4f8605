//! `/v1/tasks`: looking at tasks and steering them. Submits are in `submit.rs`, decisions about steps in `resolve.rs`.

pub(super) mod counts;
mod current;
pub(super) mod list;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use windlass_api as api;
use windlass_core::{Actor, Command, TaskId};
use windlass_engine::ports::Loaded;

use super::{
    App, bytes_response,
    classic::ClassicTask,
    enqueued,
    extract::{self, Pairs},
    ok,
    problem::Refused,
    view::{self, Overlay},
};

pub(super) use list::{STATUSES, cursor, query, status};

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
        (status = 200, description = "The task; with `view=classic` a ClassicTask", body = api::Task, headers(("ETag" = String))),
        (status = 304, description = "It is as it was"),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let (mut parts, _) = request.into_parts();
    let id = extract::task_in_path(&mut parts).await?;
    let pairs = Pairs::of(&parts, &["view"])?;
    let classic = match pairs.one("view")? {
        None => false,
        Some("classic") => true,
        Some(other) => return Err(Refused::malformed(format!("\"view\" is {other:?}, and can be classic"))),
    };
    let loaded = match app.engine.task(id).await {
        Ok(loaded) => loaded,
        Err(error) => return Err(enqueued::or_enqueued(&app, error).await),
    };
    if classic {
        return Ok(tagged(&parts.headers, &loaded, &ClassicTask::new(&loaded)));
    }
    let document = view::task(&loaded, &Overlay::of(&app, &loaded).await?);
    Ok(tagged(&parts.headers, &loaded, &document))
}

/// The document with its `ETag`, or 304 when the client has it. The tag begins with the task's version; what is
/// laid over the stored task (who has it, how far it is) changes without one, so the tag has a hash of all.
fn tagged(headers: &HeaderMap, loaded: &Loaded, document: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    let hash = Sha256::digest(&bytes);
    let short: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
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

/// Ends a task: nothing new starts, what runs is told to stop, and what was touched is undone.
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
pub(crate) async fn cancel(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    tell(&app, request, "cancel", |by| Command::Cancel { by }).await
}

/// Holds a task: what runs may end, nothing new starts.
#[utoipa::path(
    post,
    path = "/v1/tasks/{id}/pause", operation_id = "pause_task",
    tag = "tasks",
    params(("id" = String, Path, description = "Id of the task")),
    responses(
        (status = 200, description = "The task", body = api::Task),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    tell(&app, request, "pause", |by| Command::Pause { by }).await
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
        (status = 409, description = "It has ended", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    tell(&app, request, "resume", |by| Command::Resume { by }).await
}

async fn tell(
    app: &App,
    request: Request,
    kind: &'static str,
    command: impl FnOnce(Option<Actor>) -> Command,
) -> Result<Response, Refused> {
    let (mut parts, _) = request.into_parts();
    let id = extract::task_in_path(&mut parts).await?;
    let command = command(extract::actor(&parts.headers)?);
    told(app, id, kind, command).await
}

/// Tells a task something that a person wants, and answers with the task.
pub(super) async fn told(
    app: &App,
    id: TaskId,
    kind: &'static str,
    command: Command,
) -> Result<Response, Refused> {
    let loaded = app.engine.tell(id, command).await?;
    app.metrics.command(kind);
    Ok(ok(&view::task(&loaded, &Overlay::of(app, &loaded).await?)))
}
