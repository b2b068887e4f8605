//! `GET /v1/tasks/{id}/logs`: what attempts wrote.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use windlass_api as api;
use windlass_core::Task;
use windlass_engine::ports::LogLine;

use super::{
    App,
    extract::{self, Pairs},
    ok,
    problem::Refused,
    view,
};

/// Lines of a page where the request does not say: people read logs from the beginning to the end.
const PAGE_LINES: usize = 1000;

/// The lines that the attempts of a task wrote, in the order they came.
#[utoipa::path(
    get,
    path = "/v1/tasks/{id}/logs", operation_id = "list_logs",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "Id of the task"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, description = "1 to 1000; 1000 when left out"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::LogLine>),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn logs(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let (mut parts, _) = request.into_parts();
    let id = extract::task_in_path(&mut parts).await?;
    let pairs = Pairs::of(&parts, &["cursor", "limit"])?;
    let skip: u64 = pairs.number("cursor")?.unwrap_or(0);
    let limit = pairs.limit(PAGE_LINES)?;
    let task = app.engine.task(id).await?.task;
    let lines = app.engine.logs(id, skip, limit).await?;
    let next = (lines.len() == limit).then(|| (skip + lines.len() as u64).to_string());
    Ok(ok(&api::List { items: lines.into_iter().map(|line| document(&task, line)).collect(), next }))
}

fn document(task: &Task, line: LogLine) -> api::LogLine {
    let step = task.flow.steps.get(line.key.step);
    api::LogLine {
        at: view::time(line.at),
        step: step.map(|step| step.name.to_string()).unwrap_or_default(),
        direction: view::direction(line.key.direction),
        attempt: line.attempt,
        line: line.line.into(),
    }
}
