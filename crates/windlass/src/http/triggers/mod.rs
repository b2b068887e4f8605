//! `/v1/triggers`: what starts tasks by itself.

pub(super) mod definition;
mod document;
mod message;
pub(super) mod signature;
mod webhook;

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{JobTopic, Json, Name, TriggerDefinition, TriggerSource};
use windlass_engine::{Occasion, TriggerReport, TriggerStart};

use crate::http::{
    App,
    answer::{json_response, ok, problem::Refused},
    request::{
        self, By, ByName, ByNumber, JsonBody, OptionalJsonBody, PARAMS_BYTES_MAX, Path, Query,
        SUBMIT_BYTES_MAX,
    },
    tasks::view,
};

/// The largest definition of a trigger: a record has 256 KiB.
const DEFINITION_BYTES_MAX: usize = 128 << 10;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, apply, remove, webhook::receive))
        .routes(routes!(fire))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(history))
}

/// The triggers, by name.
#[utoipa::path(
    get,
    path = "/v1/triggers", operation_id = "list_triggers",
    tag = "triggers",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out"),
    ),
    responses((status = 200, description = "The page", body = api::List<api::Trigger>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(ByName { after, limit }): Query<ByName>,
) -> Result<Response, Refused> {
    let triggers = app.engine.triggers(after.as_ref(), limit, app.now()).await?;
    let next = triggers.last().filter(|_| triggers.len() == limit);
    let next = next.map(|report| report.trigger.name.to_string());
    let items = triggers.iter().map(|report| document::trigger(report, Vec::new())).collect();
    Ok(ok(&api::List { items, next }))
}

/// One trigger, and what is odd about it.
#[utoipa::path(
    get,
    path = "/v1/triggers/{name}", operation_id = "get_trigger",
    tag = "triggers",
    params(("name" = String, Path, description = "Name of the trigger")),
    responses(
        (status = 200, description = "The trigger", body = api::Trigger),
        (status = 404, description = "Unknown trigger", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<Name>) -> Result<Response, Refused> {
    let report = app.engine.trigger(&name, app.now()).await?;
    Ok(ok(&with_warnings(&app, &report).await?))
}

/// Creates a trigger, or gives one another definition. A schedule that stays the same goes on with its instants.
#[utoipa::path(
    put,
    path = "/v1/triggers/{name}", operation_id = "apply_trigger",
    tag = "triggers",
    params(("name" = String, Path, description = "Name of the trigger")),
    request_body = api::TriggerDocument,
    responses(
        (status = 200, description = "The trigger", body = api::TriggerApplied),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "The definition cannot work: its schedule never fires, for example", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    JsonBody(text): JsonBody<DEFINITION_BYTES_MAX>,
) -> Result<Response, Refused> {
    let document: api::TriggerDocument = text.parse()?;
    if let Some(other) = document.trigger.as_deref().filter(|other| *other != name.as_str()) {
        return Err(Refused::malformed(format!(
            "`trigger` is {other:?}, and the path names {name}: use the same name, or leave `trigger` out"
        )));
    }
    let definition = definition::read(document)?;
    if let Some(problem) = loops(&app, &definition).await?.pop() {
        return Err(Refused::unusable_trigger(problem));
    }
    let applied = app.engine.apply_trigger(name, definition, app.now()).await?;
    app.metrics.command("apply_trigger");
    let trigger = with_warnings(&app, &applied.report).await?;
    Ok(ok(&api::TriggerApplied { trigger, change: document::change(applied.change) }))
}

/// Removes a trigger. The tasks that it started go on.
#[utoipa::path(
    delete,
    path = "/v1/triggers/{name}", operation_id = "remove_trigger",
    tag = "triggers",
    params(("name" = String, Path, description = "Name of the trigger")),
    responses(
        (status = 200, description = "The trigger as it was", body = api::Trigger),
        (status = 404, description = "Unknown trigger", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove(State(app): State<Arc<App>>, Path(name): Path<Name>) -> Result<Response, Refused> {
    let last = app.engine.remove_trigger(&name, app.now()).await?;
    app.metrics.command("remove_trigger");
    Ok(ok(&document::trigger(&last, Vec::new())))
}

/// Fires a trigger now, whatever its schedule, whether it is paused or not, and whatever runs.
#[utoipa::path(
    post,
    path = "/v1/triggers/{name}/fire", operation_id = "fire_trigger",
    tag = "triggers",
    params(("name" = String, Path, description = "Name of the trigger")),
    request_body = Option<api::FireTrigger>,
    responses(
        (status = 202, description = "What was started", body = api::TriggerFired),
        (status = 404, description = "Unknown trigger, or none of its flows exists", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn fire(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
    OptionalJsonBody(text): OptionalJsonBody<SUBMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let body: api::FireTrigger = text.parse()?;
    let params = match &body.params {
        Some(params) => request::object("`params`", params, PARAMS_BYTES_MAX)?,
        None => Json::empty(),
    };
    let now = app.now();
    let trigger = app.engine.trigger(&name, now).await?.trigger;
    let occasion = Occasion::Operator { id: app.engine.next_task_id(now), params: &params };
    let starts = app.engine.fire_trigger(&trigger, occasion, by, now).await?;
    app.metrics.command("fire_trigger");
    Ok(json_response(StatusCode::ACCEPTED, &fired(&app, &name, starts)?))
}

/// Pauses a trigger: it does not fire by itself, and refuses requests. Instants of the pause are not fired later.
#[utoipa::path(
    post,
    path = "/v1/triggers/{name}/pause", operation_id = "pause_trigger",
    tag = "triggers",
    params(("name" = String, Path, description = "Name of the trigger")),
    responses(
        (status = 200, description = "The trigger", body = api::Trigger),
        (status = 404, description = "Unknown trigger", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is paused already", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
) -> Result<Response, Refused> {
    let report = app.engine.pause_trigger(&name, by, app.now()).await?;
    app.metrics.command("pause_trigger");
    Ok(ok(&with_warnings(&app, &report).await?))
}

/// Resumes a paused trigger.
#[utoipa::path(
    post,
    path = "/v1/triggers/{name}/resume", operation_id = "resume_trigger",
    tag = "triggers",
    params(("name" = String, Path, description = "Name of the trigger")),
    responses(
        (status = 200, description = "The trigger", body = api::Trigger),
        (status = 404, description = "Unknown trigger", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not paused", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(State(app): State<Arc<App>>, Path(name): Path<Name>) -> Result<Response, Refused> {
    let report = app.engine.resume_trigger(&name, app.now()).await?;
    app.metrics.command("resume_trigger");
    Ok(ok(&with_warnings(&app, &report).await?))
}

/// What a trigger did, newest first. The history stays when the trigger is removed, as long as logs are kept.
#[utoipa::path(
    get,
    path = "/v1/triggers/{name}/history", operation_id = "list_trigger_history",
    tag = "triggers",
    params(
        ("name" = String, Path, description = "Name of the trigger"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out"),
    ),
    responses(
        (status = 200, description = "The page", body = api::List<api::TriggerEntry>),
        (status = 404, description = "There is no such trigger, and no history of one", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    Query(ByNumber { before, limit }): Query<ByNumber>,
) -> Result<Response, Refused> {
    let entries = app.engine.trigger_history(&name, before, limit).await?;
    if entries.is_empty() {
        app.engine.trigger(&name, app.now()).await?;
    }
    let next = entries.last().filter(|_| entries.len() == limit).map(|(number, ..)| number.to_string());
    let items = entries.into_iter().map(|(_, at, entry)| document::entry(at, entry)).collect();
    Ok(ok(&api::List { items, next }))
}

async fn with_warnings(app: &App, report: &TriggerReport) -> Result<api::Trigger, Refused> {
    let flows = app.engine.flows().await?;
    let is_missing = |name: &&Name| !flows.iter().any(|stored| stored.flow.name == **name);
    let named = report.trigger.definition.flows.iter().map(|flow| &flow.flow);
    let warning = |name: &Name| format!("there is no flow {name} yet: apply it before the trigger fires");
    let mut warnings: Vec<String> = named.filter(is_missing).map(warning).collect();
    let definition = &report.trigger.definition;
    if matches!(definition.source, TriggerSource::Mqtt(_)) && !app.engine.has_devices() {
        warnings.push(
            "this server has no section [devices] in its configuration: messages fire the trigger while a server with one runs"
                .to_owned(),
        );
    }
    warnings.extend(loops(app, definition).await?);
    Ok(document::trigger(report, warnings))
}

/// Steps of the trigger's own flows that would fire it again.
async fn loops(app: &App, definition: &TriggerDefinition) -> Result<Vec<String>, Refused> {
    let TriggerSource::Mqtt(topic) = &definition.source else { return Ok(Vec::new()) };
    let flows = app.engine.flows().await?;
    let started = |name: &Name| definition.flows.iter().any(|flow| flow.flow == *name);
    let mut found = Vec::new();
    for flow in flows.iter().map(|stored| &stored.flow).filter(|flow| started(&flow.name)) {
        for step in &flow.steps {
            for job in [Some(&step.run), step.rollback.as_ref()].into_iter().flatten() {
                if let Some(JobTopic::Fixed(published)) = job.device_job().map(|job| &job.topic)
                    && topic.filter.matches(published)
                {
                    found.push(format!(
                        "the step {} of flow {} publishes on {published}, which `mqtt.topic` ({}) matches, so it would fire the \
                         trigger again: use another topic or a narrower filter",
                        step.name, flow.name, topic.filter
                    ));
                }
            }
        }
    }
    Ok(found)
}

/// What was started. If nothing was, the first refusal is the answer.
fn fired(app: &App, trigger: &Name, starts: Vec<TriggerStart>) -> Result<api::TriggerFired, Refused> {
    let is_refused = starts.iter().all(|start| start.result.is_err());
    let mut tasks = Vec::with_capacity(starts.len());
    for TriggerStart { flow, result } in starts {
        let flow = flow.to_string();
        tasks.push(match result {
            Ok((task, existing)) => {
                app.metrics.submitted(existing.is_some());
                let (task, existing) = (Some(task.to_string()), existing.map(view::existing));
                api::TriggerTask { flow, task, existing, problem: None }
            }
            Err(error) if is_refused => return Err(error.into()),
            Err(error) => {
                let problem = Some(Refused::from(error).problem());
                api::TriggerTask { flow, task: None, existing: None, problem }
            }
        });
    }
    Ok(api::TriggerFired { trigger: trigger.to_string(), tasks })
}
