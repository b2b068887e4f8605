//! `GET /v1/tasks/{id}/why`: why a task is where it is, in one sentence.

mod attempts;
mod brief;
mod devices;
mod locks;
mod sentences;
mod waits;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use windlass_api as api;
use windlass_core::{Task, TaskId, Timestamp};
use windlass_engine::{Explanation, Reason, Why};

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::Path,
    submit::enqueued,
    tasks::view,
};
use sentences::About;

/// How many of the other things that a task waits for the sentence names.
const OTHERS_NAMED: usize = 3;

/// Why a task is where it is: what it waits for, and what would end the wait.
#[utoipa::path(
    get,
    path = "/v1/tasks/{id}/why", operation_id = "explain_task",
    tag = "tasks",
    params(("id" = String, Path, description = "Id of the task")),
    responses(
        (status = 200, description = "The reason", body = api::Why),
        (status = 404, description = "Unknown task", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn why(State(app): State<Arc<App>>, Path(id): Path<TaskId>) -> Result<Response, Refused> {
    let now = app.now();
    let (loaded, explanation) = match app.engine.why(id, now).await {
        Ok(found) => found,
        Err(error) => return Err(enqueued::or_enqueued(&app, error).await),
    };
    Ok(ok(&document(&loaded.task, &explanation, now.wall)))
}

/// The engine's reasons as a document: the first one's sentence with the others after it.
fn document(task: &Task, explanation: &Explanation, now: Timestamp) -> api::Why {
    let reasons: Vec<api::WhyReason> =
        explanation.reasons.iter().map(|reason| one(task, reason, now)).collect();
    let first = reasons.first().cloned();
    let (sentence, reason, step, data) =
        first.map(|first| (first.sentence, first.reason, first.step, first.data)).unwrap_or_default();
    let deadline_at = windlass_engine::running_deadline(task);
    let ends = deadline_at.map(|at| format!(" The task's deadline ends {}.", about(task, now).when(at)));
    api::Why {
        sentence: sentence + &others(task, explanation, now) + &ends.unwrap_or_default(),
        reason,
        step,
        data,
        reasons,
        more: explanation.more,
        deadline_at: deadline_at.map(view::time),
    }
}

fn one(task: &Task, reason: &Reason, now: Timestamp) -> api::WhyReason {
    let about = About { task, key: reason.key, now };
    let (mut sentence, data) = about.explain_with_device(reason);
    // The answer as a whole has the task's own deadline.
    let deadline_at = reason.deadline_at.filter(|_| reason.key.is_some());
    if let Some(at) =
        deadline_at.filter(|_| !matches!(reason.why, Why::DeadlineFirst { .. } | Why::Signal { .. }))
    {
        sentence += &format!(" Its deadline ends {}.", about.when(at));
    }
    api::WhyReason {
        reason: reason.why.as_str().to_owned(),
        sentence,
        step: reason.key.and_then(|key| task.flow.steps.get(key.step)).map(|step| step.name.to_string()),
        member: reason.key.and_then(windlass_core::ActKey::index),
        direction: reason.key.map(|key| view::direction(key.direction)),
        deadline_at: deadline_at.map(view::time),
        data,
    }
}

/// The task as a whole, as sentences speak of it.
fn about(task: &Task, now: Timestamp) -> About<'_> {
    About { task, key: None, now }
}

/// What is said of the reasons after the first.
fn others(task: &Task, explanation: &Explanation, now: Timestamp) -> String {
    let Some(others) = explanation.reasons.get(1..).filter(|others| !others.is_empty()) else {
        return String::new();
    };
    let brief = |reason: &Reason| About { task, key: reason.key, now }.brief(&reason.why);
    let named: Vec<String> = others.iter().take(OTHERS_NAMED).map(brief).collect();
    let rest = others.len() - named.len() + explanation.more;
    let rest = if rest == 0 { String::new() } else { format!(", and {rest} more") };
    format!(" At the same time: {}{rest}.", named.join(", "))
}
