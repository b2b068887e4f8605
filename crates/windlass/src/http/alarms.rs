//! `/v1/alarms`: what a person must see.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use windlass_api as api;
use windlass_core::{Actor, Alarm, AlarmCommand, AlarmId, AlarmState, TaskId};

use super::{
    App,
    extract::{self, Pairs},
    ok,
    problem::Refused,
    view,
};

/// Alarms in one answer.
const ALARMS_MAX: usize = 1000;

/// The alarms that are not resolved, or with `all` the last 1000; those raised last first.
#[utoipa::path(
    get,
    path = "/v1/alarms", operation_id = "list_alarms",
    tag = "alarms",
    params(("all" = Option<bool>, Query, description = "Resolved ones as well")),
    responses((status = 200, description = "The page", body = api::List<api::Alarm>))
)]
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let (parts, _) = request.into_parts();
    let all = Pairs::of(&parts, &["all"])?.flag("all")?;
    let items = app.engine.alarms(all, ALARMS_MAX).await?.into_iter().map(document).collect();
    Ok(ok(&api::List { items, next: None }))
}

/// Says that somebody has seen an alarm.
#[utoipa::path(
    post,
    path = "/v1/alarms/{id}/acknowledge", operation_id = "acknowledge_alarm",
    tag = "alarms",
    params(("id" = String, Path, description = "Id of the alarm")),
    responses(
        (status = 200, description = "The alarm", body = api::Alarm),
        (status = 404, description = "Unknown alarm", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is resolved", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn acknowledge(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    tell(&app, request, "acknowledge_alarm", |by| AlarmCommand::Acknowledge { by }).await
}

/// Says that an alarm is over.
#[utoipa::path(
    post,
    path = "/v1/alarms/{id}/resolve", operation_id = "resolve_alarm",
    tag = "alarms",
    params(("id" = String, Path, description = "Id of the alarm")),
    responses(
        (status = 200, description = "The alarm", body = api::Alarm),
        (status = 404, description = "Unknown alarm", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resolve(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    tell(&app, request, "resolve_alarm", |by| AlarmCommand::Resolve { by }).await
}

async fn tell(
    app: &App,
    request: Request,
    kind: &'static str,
    command: impl FnOnce(Option<Actor>) -> AlarmCommand,
) -> Result<Response, Refused> {
    let (mut parts, _) = request.into_parts();
    let id: String = extract::path(&mut parts).await?;
    let command = command(extract::actor(&parts.headers)?);
    let alarm = app.engine.tell_alarm(AlarmId(id.into()), command).await?;
    app.metrics.command(kind);
    Ok(ok(&document(alarm)))
}

fn document(alarm: Alarm) -> api::Alarm {
    api::Alarm {
        id: alarm.id.to_string(),
        kind: alarm.kind.as_str().to_owned(),
        task: (alarm.task != TaskId::NONE).then(|| alarm.task.to_string()),
        step: alarm.step.map(|step| step.to_string()),
        message: alarm.message.into(),
        raised_at: view::time(alarm.raised_at),
        state: match alarm.state {
            AlarmState::Raised => api::AlarmState::Raised,
            AlarmState::Acknowledged => api::AlarmState::Acknowledged,
            AlarmState::Resolved => api::AlarmState::Resolved,
        },
        by: alarm.by.map(|by| by.to_string()),
    }
}
