//! `/v1/limits`: how many attempts may run concurrently, and how many may start per span of time.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Direction, Millis, Name};
use windlass_engine::{Holder, LimitReport};
use windlass_store::{Limit, Starts};

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::{self, JsonBody, Path},
    tasks::view,
};

/// The largest document of a limit, in bytes.
const LIMIT_BYTES_MAX: usize = 16 * 1024;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, set, remove))
}

/// All limits with who counts under them, by name.
#[utoipa::path(get, path = "/v1/limits", operation_id = "list_limits", tag = "limits", responses((status = 200, description = "The limits", body = api::List<api::Limit>)))]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<Response, Refused> {
    let limits = app.engine.limits(app.now()).await?;
    let items = limits.iter().map(|report| document(report, Vec::new())).collect();
    Ok(ok(&api::List { items, next: None }))
}

/// One limit with who counts under it, and what is odd about it.
#[utoipa::path(
    get,
    path = "/v1/limits/{name}", operation_id = "get_limit",
    tag = "limits",
    params(("name" = String, Path, description = "Name of the limit")),
    responses(
        (status = 200, description = "The limit", body = api::Limit),
        (status = 404, description = "Unknown limit", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refused> {
    Ok(ok(&limit(&app, &name).await?))
}

/// Sets a limit. It applies at once, also to attempts that are already running; one of the same name is replaced.
#[utoipa::path(
    put,
    path = "/v1/limits/{name}", operation_id = "set_limit",
    tag = "limits",
    params(("name" = String, Path, description = "Name of the limit")),
    request_body = api::SetLimit,
    responses(
        (status = 200, description = "The limit", body = api::Limit),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "It limits nothing, or everything", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    JsonBody(text): JsonBody<LIMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let rule: api::SetLimit = text.parse()?;
    let limit = Limit {
        name: request::name("the limit", &name)?,
        queue: request::name("`queue`", &rule.queue)?,
        command: rule.command.as_deref().map(|command| request::name("`command`", command)).transpose()?,
        per_key: rule.per_key,
        running: rule.running,
        starts: rule.starts.map(|starts| Starts { count: starts.count, per: Millis(starts.per.ms) }),
    };
    limit.check().map_err(Refused::unusable_limit)?;
    app.engine.set_limit(limit).await?;
    app.metrics.command("set_limit");
    Ok(ok(&self::limit(&app, &name).await?))
}

/// Removes a limit.
#[utoipa::path(
    delete,
    path = "/v1/limits/{name}", operation_id = "remove_limit",
    tag = "limits",
    params(("name" = String, Path, description = "Name of the limit")),
    responses(
        (status = 200, description = "The limit as it was", body = api::Limit),
        (status = 404, description = "Unknown limit", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Response, Refused> {
    let limit = limit(&app, &name).await?;
    app.engine.remove_limit(request::name("the limit", &name)?).await?;
    app.metrics.command("remove_limit");
    Ok(ok(&limit))
}

async fn limit(app: &App, name: &str) -> Result<api::Limit, Refused> {
    let limits = app.engine.limits(app.now()).await?;
    let is_named = |report: &&LimitReport| report.state.limit.name.as_str() == name;
    let Some(report) = limits.iter().find(is_named) else { return Err(Refused::unknown_limit(name)) };
    let warnings = app.engine.limit_warnings(&report.state.limit).await?;
    Ok(document(report, warnings))
}

fn document(report: &LimitReport, warnings: Vec<String>) -> api::Limit {
    let state = &report.state;
    let limit = &state.limit;
    let starts = limit
        .starts
        .map(|starts| api::LimitStarts { count: starts.count, per: api::Span::from_ms(starts.per.0) });
    api::Limit {
        name: limit.name.to_string(),
        queue: limit.queue.to_string(),
        command: limit.command.as_ref().map(Name::to_string),
        per_key: limit.per_key,
        running: limit.running,
        starts,
        usage: api::LimitUsage {
            running: state.running,
            started: state.started,
            next_start_at: state.next_start_at.map(view::time),
        },
        holders: report.holders.iter().map(holder).collect(),
        warnings,
    }
}

fn holder(holder: &Holder) -> api::LimitHolder {
    api::LimitHolder {
        task: holder.task.to_string(),
        step: holder.step.as_ref().map(ToString::to_string),
        member: holder.act.index(),
        direction: match holder.act.direction {
            Direction::Forward => api::Direction::Forward,
            Direction::Rollback => api::Direction::Rollback,
        },
        attempt: holder.attempt,
        key: holder.key.as_deref().map(Into::into),
        since: view::time(holder.since),
        worker: holder.worker.to_string(),
    }
}
