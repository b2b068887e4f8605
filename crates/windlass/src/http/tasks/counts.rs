//! `GET /v1/tasks/counts`: how many tasks meet filters, by status.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, response::Response};
use windlass_api as api;
use windlass_core::task_status;
use windlass_store::TaskQuery;

use super::list::{self, Filters};
use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::Query,
    tasks::view,
};

/// Tasks read at once, without parameters. Those with members are read whole.
const READ_AT_ONCE: usize = 200;

/// Tasks counted in one call, so that it is answered in time.
const COUNTED_MAX: u64 = 10_000;

/// Counts tasks by status.
///
/// One call counts about 10,000 tasks and looks at no more than about 20,000. Where there are more it gives `next`: send it
/// as `cursor`, and add the counts up. Tasks that change between two calls are counted as they are when they are read.
#[utoipa::path(
    get,
    path = "/v1/tasks/counts", operation_id = "count_tasks",
    tag = "tasks",
    params(
        ("status" = Option<Vec<api::TaskStatus>>, Query, style = Form, explode = false, description = "As for the list of tasks"),
        ("flow" = Option<String>, Query, description = "As for the list of tasks"),
        ("label" = Option<String>, Query, description = "As for the list of tasks"),
        ("idempotency_key" = Option<String>, Query, description = "As for the list of tasks"),
        ("unique_key" = Option<String>, Query, description = "As for the list of tasks"),
        ("param" = Option<String>, Query, description = "As for the list of tasks"),
        ("since" = Option<String>, Query, description = "As for the list of tasks"),
        ("until" = Option<String>, Query, description = "As for the list of tasks"),
        ("cursor" = Option<String>, Query, description = "`next` of the counts before"),
    ),
    responses(
        (status = 200, description = "The counts", body = api::TaskCounts),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    Query(filters): Query<Filters>,
) -> Result<Response, Refused> {
    let filters = filters.into_query(&app).await?;
    let mut query = TaskQuery { limit: READ_AT_ONCE, brief: true, ..filters };
    let mut counts = api::TaskCounts { total: 0, by_status: BTreeMap::new(), next: None };
    loop {
        let page = app.engine.tasks(&query).await?;
        for loaded in &page.items {
            let status = view::status(task_status(&loaded.task, &loaded.held()));
            *counts.by_status.entry(status.as_str().to_owned()).or_default() += 1;
            counts.total += 1;
        }
        query.before = page.next;
        // A page that is not full looked at as many tasks as one may.
        let is_enough = counts.total >= COUNTED_MAX || page.items.len() < query.limit;
        if query.before.is_none() || is_enough {
            counts.next = query.before.map(list::cursor);
            return Ok(ok(&counts));
        }
    }
}
