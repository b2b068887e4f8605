//! `/v1/queues`: the work of each module.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Actor, Name};
use windlass_engine::EngineError;
use windlass_store::{QueueState, SessionState};

use crate::http::{
    App,
    access::Grant,
    answer::{ok, problem::Refused},
    locks,
    request::{self, By, JsonBody, Path, SUBMIT_BYTES_MAX},
    tasks::view,
};

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(skip))
}

/// All queues, by name: one per module that a flow names or a worker serves. A token that is limited to queues or flows gets
/// those of its queues.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "queues", responses((status = 200, description = "The page", body = api::List<api::Queue>)))]
pub(crate) async fn list(State(app): State<Arc<App>>, grant: Grant) -> Result<Response, Refused> {
    let queues = queues(&app).await?.into_values();
    let items = queues.filter(|queue| grant.has_queue(&queue.name)).collect();
    Ok(ok(&api::List { items, next: None }))
}

/// One queue.
#[utoipa::path(
    get,
    path = "/v1/queues/{name}", operation_id = "get_queue",
    tag = "queues",
    params(("name" = String, Path, description = "The module")),
    responses(
        (status = 200, description = "The queue", body = api::Queue),
        (status = 404, description = "Unknown queue", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refused> {
    Ok(ok(&queue(&app, &name).await?))
}

/// Hands out nothing more of a queue; what runs may end.
#[utoipa::path(
    post,
    path = "/v1/queues/{name}/pause", operation_id = "pause_queue",
    tag = "queues",
    params(("name" = String, Path, description = "The module")),
    responses(
        (status = 200, description = "The queue", body = api::Queue),
        (status = 404, description = "Unknown queue", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    By(by): By,
) -> Result<Response, Refused> {
    set_paused(&app, &name, by, true).await
}

/// Hands out the work of a queue again.
#[utoipa::path(
    post,
    path = "/v1/queues/{name}/resume", operation_id = "resume_queue",
    tag = "queues",
    params(("name" = String, Path, description = "The module")),
    responses(
        (status = 200, description = "The queue", body = api::Queue),
        (status = 404, description = "Unknown queue", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    By(by): By,
) -> Result<Response, Refused> {
    set_paused(&app, &name, by, false).await
}

/// Moves an exclusive queue past the task that has it: the next task of the queue starts. Refused while an attempt or a
/// child task of that task is under way.
#[utoipa::path(
    post,
    path = "/v1/queues/{name}/skip", operation_id = "skip_queue",
    tag = "queues",
    params(("name" = String, Path, description = "Name of the exclusive queue")),
    request_body = api::SkipQueue,
    responses(
        (status = 200, description = "The queue, as a lock", body = api::Lock),
        (status = 400, description = "No reason", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "No task has the queue", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "An attempt of the task is under way", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn skip(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
    JsonBody(body): JsonBody<SUBMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let body = body.parse::<api::SkipQueue>()?;
    let reason = locks::reason(&body.reason, "the queue moves past the task that has it")?;
    let skipped = app.engine.skip_queue(name.clone(), reason, by.clone()).await?;
    tracing::info!(queue = %name, task = %skipped.task, by = by.map(|by| by.to_string()), "an exclusive queue was moved past a task");
    app.metrics.command("skip_queue");
    Ok(ok(&locks::queue_document(&app, &skipped.queue).await?))
}

async fn set_paused(app: &App, name: &str, by: Option<Actor>, paused: bool) -> Result<Response, Refused> {
    let before = queue(app, name).await?;
    if before.paused != paused {
        let name = request::name("the queue", name)?;
        app.engine.set_queue_paused(name, paused, by, app.now()).await?;
    }
    app.metrics.command(if paused { "pause_queue" } else { "resume_queue" });
    Ok(ok(&queue(app, name).await?))
}

async fn queue(app: &App, name: &str) -> Result<api::Queue, Refused> {
    queues(app).await?.remove(name).ok_or_else(|| Refused::unknown_queue(name))
}

/// Every queue: those the store knows, those that flows name, those that workers serve.
async fn queues(app: &App) -> Result<BTreeMap<Name, api::Queue>, Refused> {
    let mut queues = BTreeMap::new();
    let (states, workers) = look(app).await?;
    for state in states {
        queues.insert(state.name.clone(), document(&state));
    }
    let quiet = |name: &Name| {
        document(&QueueState {
            name: name.clone(),
            ready: 0,
            running: 0,
            oldest_ready_at: None,
            paused: None,
        })
    };
    for stored in app.engine.flows().await? {
        let actions = stored.flow.steps.iter().flat_map(|step| [Some(&step.run), step.rollback.as_ref()]);
        for action in actions.flatten() {
            if let Some((module, _)) = action.worker() {
                queues.entry(module.clone()).or_insert_with(|| quiet(module));
            }
        }
    }
    for worker in workers {
        for module in &worker.worker.modules {
            let queue = queues.entry(module.clone()).or_insert_with(|| quiet(module));
            queue.workers += 1;
            queue.draining += u32::from(app.engine.is_draining(worker.session));
        }
    }
    Ok(queues)
}

/// The queues that the store knows, and the workers that are connected. What a queue publisher has put on a
/// broker waits for a worker as well.
pub(super) async fn look(app: &App) -> Result<(Vec<QueueState>, Vec<SessionState>), EngineError> {
    let mut queues = app.engine.queues().await?;
    let (own, workers): (Vec<_>, Vec<_>) =
        app.engine.workers(app.now()).await?.into_iter().partition(|state| state.session.is_own());
    for publisher in own.into_iter().filter(|state| state.session.is_publisher()) {
        let offered = u64::from(publisher.running);
        for queue in queues.iter_mut().filter(|queue| publisher.worker.modules.contains(&queue.name)) {
            queue.ready += offered;
            queue.running = queue.running.saturating_sub(offered);
        }
    }
    Ok((queues, workers))
}

fn document(state: &QueueState) -> api::Queue {
    api::Queue {
        name: state.name.to_string(),
        ready: state.ready,
        running: state.running,
        oldest_ready_at: state.oldest_ready_at.map(view::time),
        paused: state.paused.is_some(),
        workers: 0,
        draining: 0,
    }
}
