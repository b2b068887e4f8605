//! `GET /v1/tasks/{id}/why`: why a task is where it is, in one sentence.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use serde_json::{Value, json};
use windlass_api as api;
use windlass_core::{ActKey, ActState, Action, Direction, StuckKind, Task, TaskStatus, Timestamp};
use windlass_engine::Why;

use super::{
    App,
    extract::{self, Pairs},
    ok,
    problem::Refused,
    view,
};

/// Why a task is where it is.
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
pub(crate) async fn why(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let (mut parts, _) = request.into_parts();
    let id = extract::task_in_path(&mut parts).await?;
    Pairs::of(&parts, &[])?;
    let now = app.now();
    let (loaded, why) = app.engine.why(id, now).await?;
    Ok(ok(&explain(&loaded.task, &why, now.wall)))
}

/// The engine's reason as a sentence, with what it is about.
pub(crate) fn explain(task: &Task, why: &Why, now: Timestamp) -> api::Why {
    let (reason, key, sentence, data) = match why {
        Why::Ended(status) => ended(task, *status),
        Why::Stuck { kind, step, message } => return stuck(task, *kind, *step, message),
        Why::Paused { in_flight } => paused(*in_flight),
        Why::Scheduled { at } => (
            "scheduled",
            None,
            format!("The task starts in {}, at {}.", span(*at, now), view::time(*at)),
            json!({ "at": view::time(*at) }),
        ),
        Why::Ending { key, worker } => (
            "ending",
            Some(*key),
            format!(
                "The task was turned around and waits for {} to end with worker {worker} before anything is undone.",
                what(task, *key)
            ),
            json!({ "worker": worker }),
        ),
        Why::Running { key, attempt, worker, since } => (
            "running",
            Some(*key),
            format!(
                "Attempt {attempt} of {} has been with worker {worker} for {}.",
                what(task, *key),
                span(now, *since)
            ),
            json!({ "attempt": attempt, "worker": worker, "since": view::time(*since) }),
        ),
        Why::Retry { key, attempt, until, message } => {
            retry(task, *key, *attempt, *until, message.as_deref(), now)
        }
        Why::QueuePaused { key, pause } => {
            let by = pause.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            let module = module(task, *key);
            (
                "queue_paused",
                Some(*key),
                format!(
                    "{} is ready, but the queue {module} was paused {} ago{by}: `windlass queue resume {module}` \
                     lets it go on.",
                    capital(&what(task, *key)),
                    span(now, pause.at)
                ),
                json!({ "queue": module, "since": view::time(pause.at), "by": pause.by.as_ref().map(ToString::to_string) }),
            )
        }
        Why::NoWorker { key, others } => no_worker(task, *key, *others),
        Why::Queued { key, before, workers } => queued(task, *key, *before, *workers),
        Why::Grace { key } => (
            "grace",
            Some(*key),
            format!("{} is ready and is about to be handed out.", capital(&what(task, *key))),
            json!({}),
        ),
    };
    let step = key.and_then(|key| step_name(task, key.step));
    api::Why { sentence, reason: reason.to_owned(), step, data }
}

type Explained = (&'static str, Option<ActKey>, String, Value);

fn ended(task: &Task, status: TaskStatus) -> Explained {
    let word = view::status(status).as_str();
    let because = task.message().map(|message| format!(": {message}")).unwrap_or_default();
    let sentence = match status {
        TaskStatus::Succeeded => "The task has succeeded.".to_owned(),
        TaskStatus::RolledBack => format!("The task has failed and was rolled back{because}."),
        TaskStatus::Failed => format!("The task has failed, and there was nothing to undo{because}."),
        TaskStatus::Cancelled => {
            format!("The task was {}.", task.message().unwrap_or_else(|| word.to_owned()))
        }
        _ => format!("The task has ended as {word}."),
    };
    ("ended", None, sentence, json!({ "status": word }))
}

fn stuck(task: &Task, kind: StuckKind, step: Option<usize>, message: &str) -> api::Why {
    let name = step.and_then(|step| step_name(task, step));
    // A task that goes backward already cannot be told to.
    let choices = if task.state.cause.is_some() { "retry|skip|done" } else { "retry|skip|done|rollback" };
    let settle = match &name {
        Some(name) => format!("; settle it with `windlass task resolve {} {name} {choices}`", task.id),
        None => String::new(),
    };
    api::Why {
        sentence: format!("The task waits for a person, because {}{settle}.", message.trim_end_matches('.')),
        reason: "stuck".to_owned(),
        step: name,
        data: json!({ "kind": kind.as_str(), "message": message }),
    }
}

fn paused(in_flight: usize) -> Explained {
    let sentence = match in_flight {
        0 => "The task is paused: nothing starts until somebody resumes it.".to_owned(),
        1 => "The task is being paused: one attempt is still in flight, nothing new starts.".to_owned(),
        n => format!("The task is being paused: {n} attempts are still in flight, nothing new starts."),
    };
    ("task_paused", None, sentence, json!({ "in_flight": in_flight }))
}

fn retry(
    task: &Task,
    key: ActKey,
    attempt: u32,
    until: Timestamp,
    message: Option<&str>,
    now: Timestamp,
) -> Explained {
    let because =
        message.map(|message| format!("; the last attempt failed: {}", message.trim_end_matches('.')));
    // The task is woken by a deadline as well, which is no retry.
    let is_retry = task.act(key).is_some_and(|act| act.state == ActState::Delayed { until });
    let due = if is_retry { format!("Attempt {}", attempt + 1) } else { "The deadline".to_owned() };
    let when = if until > now { format!("is due in {}", span(until, now)) } else { "is due now".to_owned() };
    (
        "retry",
        Some(key),
        format!("{due} of {} {when}{}.", what(task, key), because.unwrap_or_default()),
        json!({ "attempt": attempt, "until": view::time(until), "message": message }),
    )
}

fn no_worker(task: &Task, key: ActKey, others: usize) -> Explained {
    let connected = match others {
        0 => "no worker is connected".to_owned(),
        1 => "the one connected worker does not".to_owned(),
        n => format!("none of the {n} connected workers does"),
    };
    let run = task.action(key).map(view::run).unwrap_or_default();
    (
        "no_worker",
        Some(key),
        format!("{} waits for a worker that serves {run}: {connected}.", capital(&what(task, key))),
        json!({ "module": module(task, key), "run": run, "other_workers": others }),
    )
}

fn queued(task: &Task, key: ActKey, before: u64, workers: usize) -> Explained {
    let module = module(task, key);
    let served = match workers {
        1 => "one worker".to_owned(),
        n => format!("{n} workers"),
    };
    let place = match before {
        0 => format!("is the next in the queue {module}, once one of its workers is free"),
        1 => format!("is second in the queue {module}"),
        n => format!("waits in the queue {module} behind {n} others"),
    };
    (
        "queued",
        Some(key),
        format!("{} {place} ({served} connected).", capital(&what(task, key))),
        json!({ "queue": module, "before": before, "workers": workers }),
    )
}

fn step_name(task: &Task, step: usize) -> Option<String> {
    task.flow.steps.get(step).map(|step| step.name.to_string())
}

/// `step init`, or `the rollback of step init`.
fn what(task: &Task, key: ActKey) -> String {
    let name = step_name(task, key.step).unwrap_or_default();
    match key.direction {
        Direction::Forward => format!("step {name}"),
        Direction::Rollback => format!("the rollback of step {name}"),
    }
}

fn module(task: &Task, key: ActKey) -> String {
    task.action(key).and_then(Action::worker).map(|(module, _)| module.to_string()).unwrap_or_default()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The time between two instants, as people say it: to the second, or to the millisecond when it is short.
fn span(later: Timestamp, earlier: Timestamp) -> String {
    let ms = (later - earlier).0;
    let rounded = if ms < 1000 { ms } else { ms / 1000 * 1000 };
    api::Span::from_ms(rounded).to_string()
}
