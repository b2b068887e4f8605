//! `GET /v1/tasks/{id}/logs`: what attempts wrote, as a list or as a stream that goes on.

mod stream;

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    http::request::Parts,
    response::{
        IntoResponse as _, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use futures_util::StreamExt as _;
use windlass_api as api;
use windlass_core::{ActKey, Task, TaskId};
use windlass_store::LogLine;

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::{Pairs, Path},
    tasks::{
        events::{HEARTBEAT, last_event_id, wants_stream},
        resolve::step_of,
        view,
    },
};
use stream::{Follower, Sent};

/// Lines of a page where the request does not say: people read logs from the beginning to the end.
const PAGE_LINES: usize = 1000;

/// The lines that the attempts of a task wrote, in the order they came.
///
/// With `Accept: text/event-stream` the answer is a stream of server-sent events that goes on until the task has
/// ended: `id` is the number of the line, `event` is `step.log` or `rollback.log`, `data` the document. The last event
/// is `task.ended`.
#[utoipa::path(
    get,
    path = "/v1/tasks/{id}/logs", operation_id = "list_logs",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "Id of the task"),
        ("step" = Option<String>, Query, description = "Only those of this step, or of one item of it: `resize[3]`. A page may hold fewer then, even none, while there is `next`"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 1000 when left out; not for streams"),
        ("Last-Event-ID" = Option<u64>, Header, description = "Only the lines after the one with this number, for streams"),
    ),
    responses(
        (status = 200, description = "A page, or the stream", content(
            (api::List<api::LogLine> = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn logs(
    State(app): State<Arc<App>>,
    Path(id): Path<TaskId>,
    parts: Parts,
) -> Result<Response, Refused> {
    if wants_stream(&parts.headers) { stream(app, id, &parts).await } else { page(&app, id, &parts).await }
}

async fn page(app: &App, id: TaskId, parts: &Parts) -> Result<Response, Refused> {
    let pairs = Pairs::of(parts, &["cursor", "limit", "step"])?;
    let after: u64 = pairs.number("cursor")?.unwrap_or(0);
    let limit = pairs.limit(PAGE_LINES)?;
    let task = app.engine.task(id).await?.task;
    let wanted = pairs.one("step")?.map(|step| Wanted::read(&task, step)).transpose()?;
    let lines = app.engine.logs(id, after, limit).await?;
    let next = lines.last().filter(|_| lines.len() == limit).map(|(number, _)| number.to_string());
    let items = lines
        .into_iter()
        .filter(|(_, line)| wanted.is_none_or(|wanted| wanted.includes(line.key)))
        .map(|(number, line)| document(&task, number, line))
        .collect();
    Ok(ok(&api::List { items, next }))
}

async fn stream(app: Arc<App>, id: TaskId, parts: &Parts) -> Result<Response, Refused> {
    let pairs = Pairs::of(parts, &["cursor", "step"])?;
    let after = match last_event_id(&parts.headers)? {
        Some(last) => last,
        None => pairs.number("cursor")?.unwrap_or(0),
    };
    let lines = Follower::begin(app, id, after, pairs.one("step")?).await?.into_stream();
    let events = lines.map(|sent| Ok::<_, Infallible>(sse_event(&sent)));
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response())
}

fn sse_event(sent: &Sent) -> sse::Event {
    match sent {
        Sent::Line(line) => {
            let kind = match line.direction {
                api::Direction::Forward => "step.log",
                api::Direction::Rollback => "rollback.log",
            };
            let data = serde_json::to_string(line).unwrap_or_default();
            sse::Event::default().event(kind).id(line.number.to_string()).data(data)
        }
        Sent::End { status } => {
            let data = serde_json::json!({ "status": status.as_str() });
            sse::Event::default().event("task.ended").data(data.to_string())
        }
    }
}

/// The step of which lines are wanted, or the one member of it.
#[derive(Clone, Copy)]
struct Wanted {
    step: usize,
    member: Option<u32>,
}

impl Wanted {
    /// Reads `resize` or `resize[3]`.
    fn read(task: &Task, text: &str) -> Result<Self, Refused> {
        let (name, member) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            None => (text, None),
            Some((name, member)) => (name, Some(member)),
        };
        let step = step_of(task, name)?;
        let Some(member) = member else { return Ok(Self { step, member: None }) };
        let total = task.state.steps[step].members.as_ref().map_or(0, |members| members.total());
        match member.parse().ok().filter(|member| *member < total) {
            Some(member) => Ok(Self { step, member: Some(member) }),
            None => Err(Refused::unknown_step(format!(
                "step {name:?} has no item {member}: it has {total}, counted from 0"
            ))),
        }
    }

    fn includes(self, key: ActKey) -> bool {
        key.step == self.step && self.member.is_none_or(|member| key.index() == Some(member))
    }
}

fn document(task: &Task, number: u64, line: LogLine) -> api::LogLine {
    let step = task.flow.steps.get(line.key.step);
    api::LogLine {
        number,
        at: view::time(line.at),
        step: step.map(|step| step.name.to_string()).unwrap_or_default(),
        member: line.key.index(),
        direction: view::direction(line.key.direction),
        attempt: line.attempt,
        line: line.line.into(),
    }
}
