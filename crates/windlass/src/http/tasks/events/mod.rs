//! `GET /v1/tasks/{id}/events`: what happened to a task, as a list or as a stream that goes on.

mod document;
mod stream;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, header, request::Parts},
    response::{
        IntoResponse as _, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use futures_util::StreamExt as _;
use windlass_api as api;
use windlass_core::TaskId;

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::{Pairs, Path},
};
pub(crate) use document::event as event_document;
use stream::{Follower, Lines};

/// Events of a page where the request does not say.
const PAGE_EVENTS: usize = 100;

/// How often a stream without news says that it lives, so that proxies do not cut it.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// What happened to a task, oldest first.
///
/// With `Accept: text/event-stream` the answer is a stream of server-sent events that goes on until the task has
/// ended: `id` is the event's number, `event` its kind, `data` the document. Notices of what is not in the history
/// yet (`step.started` and `step.progress` of a running attempt; with `logs=true` also `step.log`, a line it wrote) have no
/// `id`.
#[utoipa::path(
    get,
    path = "/v1/tasks/{id}/events", operation_id = "list_events",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "Id of the task"),
        ("after" = Option<u64>, Query, description = "Only those after the one with this number"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out; not for streams"),
        ("logs" = Option<bool>, Query, description = "Whether a stream also has the lines that attempts write from now on"),
        ("Last-Event-ID" = Option<u64>, Header, description = "As `after`, for streams"),
    ),
    responses(
        (status = 200, description = "A page, or the stream", content(
            (api::List<api::Event> = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    Path(id): Path<TaskId>,
    parts: Parts,
) -> Result<Response, Refused> {
    if wants_stream(&parts.headers) { stream(app, id, &parts).await } else { page(&app, id, &parts).await }
}

async fn page(app: &App, id: TaskId, parts: &Parts) -> Result<Response, Refused> {
    let pairs = Pairs::of(parts, &["after", "cursor", "limit"])?;
    let after = match (pairs.number("cursor")?, pairs.number("after")?) {
        (Some(_), Some(_)) => return Err(Refused::malformed("give either \"cursor\" or \"after\"")),
        (cursor, after) => cursor.or(after).unwrap_or(0),
    };
    let limit = pairs.limit(PAGE_EVENTS)?;
    let task = app.engine.task(id).await?.task;
    let events = app.engine.events(id, after, limit).await?;
    let next = events.last().filter(|_| events.len() == limit).map(|(n, _)| n.to_string());
    let items = events.iter().map(|(n, event)| document::event(&task, *n, event)).collect();
    Ok(ok(&api::List { items, next }))
}

async fn stream(app: Arc<App>, id: TaskId, parts: &Parts) -> Result<Response, Refused> {
    let pairs = Pairs::of(parts, &["after", "logs"])?;
    let lines = if pairs.flag("logs")? { Lines::Sent } else { Lines::LeftOut };
    let after = match last_event_id(&parts.headers)? {
        Some(last) => last,
        None => pairs.number("after")?.unwrap_or(0),
    };
    let follower = Follower::begin(app, id, after, lines).await?;
    let events = follower.into_stream().map(|event| Ok::<_, Infallible>(sse_event(&event)));
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response())
}

fn sse_event(event: &api::Event) -> sse::Event {
    let data = serde_json::to_string(event).unwrap_or_default();
    let sent = sse::Event::default().event(&event.kind).data(data);
    match event.n {
        Some(n) => sent.id(n.to_string()),
        None => sent,
    }
}

pub(super) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        range.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
    })
}

pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Refused> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        Refused::malformed("the header `Last-Event-ID` must be the number of an event, as `id` gave it")
    })
}
