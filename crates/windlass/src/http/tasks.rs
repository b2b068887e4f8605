//! `/v1/tasks`: looking at tasks and steering them. Submits are in `submit.rs`, decisions about steps in `resolve.rs`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use windlass_api as api;
use windlass_core::{Actor, Command, TaskId, TaskStatus, Timestamp};
use windlass_engine::ports::{Loaded, TaskQuery};

use super::{
    App, bytes_response,
    classic::ClassicTask,
    enqueued,
    extract::{self, Pairs},
    ok,
    page::Page,
    problem::Refused,
    view::{self, Overlay},
};

/// Tasks of a page where the request does not say.
const PAGE_ITEMS: usize = 100;

/// Tasks read at once: each may have a megabyte of parameters.
const READ_AT_ONCE: usize = 32;

/// What the cursor of a list begins with, so that it is not taken for anything else.
const CURSOR_PREFIX: &str = "t";

/// Every status with its word.
pub(super) const STATUSES: [TaskStatus; 11] = [
    TaskStatus::Scheduled,
    TaskStatus::Pending,
    TaskStatus::Running,
    TaskStatus::Pausing,
    TaskStatus::Paused,
    TaskStatus::RollingBack,
    TaskStatus::Succeeded,
    TaskStatus::RolledBack,
    TaskStatus::Failed,
    TaskStatus::Cancelled,
    TaskStatus::Stuck,
];

/// Tasks, newest first, without steps and results. A page ends early, with `next`, once its tasks have 8 MiB of
/// parameters.
#[utoipa::path(
    get,
    path = "/v1/tasks", operation_id = "list_tasks",
    tag = "tasks",
    params(
        ("status" = Option<String>, Query, description = "Only with one of these statuses: comma-separated, or given several times"),
        ("flow" = Option<String>, Query, description = "Only of this flow"),
        ("label" = Option<String>, Query, description = "Only with this label, as `name:value`; may be given several times"),
        ("since" = Option<String>, Query, description = "Only accepted at or after this time: RFC 3339, or how long ago (`15m`)"),
        ("until" = Option<String>, Query, description = "Only accepted before this time"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "1 to 1000; 100 when left out"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::Task>),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let (parts, _) = request.into_parts();
    let query = query(&parts, app.now().wall)?;
    Ok(ok(&page(&app, query).await?))
}

/// A page of tasks. They are read a few at a time, so that not many more are in memory than there is room for.
async fn page(app: &App, mut query: TaskQuery) -> Result<api::List<api::Task>, Refused> {
    let mut page = Page::new(query.limit);
    loop {
        query.limit = page.room().min(READ_AT_ONCE);
        let read = app.engine.tasks(&query).await?;
        let (found, mut taken) = (read.items.len(), 0);
        for loaded in &read.items {
            if page.room() == 0 {
                break;
            }
            let task = view::summary(loaded);
            let bytes = task.params.get().len();
            page.push(task, bytes);
            query.before = Some(loaded.task.id);
            taken += 1;
        }
        // Where all were taken the store knows whether there are more.
        if taken == found {
            query.before = read.next;
        }
        // What found less than it might have looked at enough.
        if page.room() == 0 || found < query.limit || query.before.is_none() {
            return Ok(page.into_list(query.before.map(cursor)));
        }
    }
}

pub(super) fn query(parts: &Parts, now: Timestamp) -> Result<TaskQuery, Refused> {
    let known = ["status", "flow", "label", "since", "until", "cursor", "limit"];
    let pairs = Pairs::of(parts, &known)?;
    Ok(TaskQuery {
        statuses: pairs
            .all("status")
            .flat_map(|list| list.split(','))
            .map(status)
            .collect::<Result<_, _>>()?,
        flow: pairs.one("flow")?.map(|flow| extract::name("\"flow\"", flow)).transpose()?,
        labels: pairs.all("label").map(label).collect::<Result<BTreeMap<_, _>, _>>()?,
        since: pairs.time("since", now)?,
        until: pairs.time("until", now)?,
        before: pairs.one("cursor")?.map(read_cursor).transpose()?,
        limit: pairs.limit(PAGE_ITEMS)?,
        without_params: false,
    })
}

pub(super) fn status(text: &str) -> Result<TaskStatus, Refused> {
    let found = STATUSES.into_iter().find(|status| view::status(*status).as_str() == text);
    found.ok_or_else(|| {
        let known: Vec<&str> = STATUSES.iter().map(|status| view::status(*status).as_str()).collect();
        Refused::malformed(format!("{text:?} is no status of a task: they are {}", known.join(", ")))
    })
}

fn label(text: &str) -> Result<(String, String), Refused> {
    let label = text.split_once(':').filter(|(name, _)| !name.is_empty());
    label
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| Refused::malformed(format!("\"label\" is {text:?}, and must be name:value")))
}

pub(super) fn cursor(before: TaskId) -> String {
    format!("{CURSOR_PREFIX}{:032x}", before.0)
}

fn read_cursor(text: &str) -> Result<TaskId, Refused> {
    let hex = text.strip_prefix(CURSOR_PREFIX).filter(|hex| hex.len() == 32);
    let id = hex.and_then(|hex| u128::from_str_radix(hex, 16).ok()).map(TaskId);
    // What reads as a number but was not written here, `+1` for example, is none of ours either.
    id.filter(|id| cursor(*id) == text).ok_or_else(|| {
        Refused::malformed(
            "\"cursor\" is none that this server gave: send `next` of the page before as it came",
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_ours() {
        let id = TaskId(0x0190_0000_0000_7000_8000_0000_0000_0001);
        assert_eq!(read_cursor(&cursor(id)).unwrap(), id);
        for bad in [
            "",
            "t",
            "01900000000070008000000000000001",
            "t+1900000000070008000000000000001",
            "t0190000000007000800000000000000A",
            "t0190000000007000800000000000000g",
            &format!("{}0", cursor(id)),
        ] {
            assert!(read_cursor(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_status_has_its_word() {
        for known in STATUSES {
            assert_eq!(status(view::status(known).as_str()).unwrap(), known);
        }
        assert!(status("done").unwrap_err().problem().detail.contains("rolled_back"));
    }
}
