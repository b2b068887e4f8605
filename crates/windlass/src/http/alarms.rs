//! `/v1/alarms`: what an operator must see.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Alarm, AlarmCommand, AlarmId, AlarmState, TaskId, Timestamp};

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::{By, FromQuery, Pairs, Path, Query},
    tasks::view,
};

/// Alarms in one answer.
const ALARMS_MAX: usize = 1000;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(acknowledge)).routes(routes!(resolve))
}

/// Whether resolved ones are listed as well.
pub(crate) struct All(bool);

impl FromQuery for All {
    const NAMES: &'static [&'static str] = &["all"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        pairs.flag("all").map(Self)
    }
}

/// The alarms that are not resolved, or with `all` the last 1000; those raised last first.
#[utoipa::path(
    get,
    path = "/v1/alarms", operation_id = "list_alarms",
    tag = "alarms",
    params(("all" = Option<bool>, Query, description = "Resolved ones as well")),
    responses((status = 200, description = "The page", body = api::List<api::Alarm>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(All(all)): Query<All>,
) -> Result<Response, Refused> {
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
pub(crate) async fn acknowledge(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    By(by): By,
) -> Result<Response, Refused> {
    tell(&app, id, "acknowledge_alarm", AlarmCommand::Acknowledge { by }).await
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
pub(crate) async fn resolve(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    By(by): By,
) -> Result<Response, Refused> {
    tell(&app, id, "resolve_alarm", AlarmCommand::Resolve { by }).await
}

async fn tell(app: &App, id: String, kind: &'static str, command: AlarmCommand) -> Result<Response, Refused> {
    let alarm = app.engine.tell_alarm(AlarmId(id.into()), command).await?;
    app.metrics.command(kind);
    Ok(ok(&document(alarm)))
}

/// An alarm, for users.
pub(crate) fn document(alarm: Alarm) -> api::Alarm {
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
