//! `POST /v1/tasks/bulk`: steers all tasks that meet a filter, after they were counted.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use windlass_api as api;
use windlass_core::{ActState, Actor, Command, Pause, Phase, StuckKind, Task, TaskId, Timestamp};
use windlass_engine::EngineError;
use windlass_store::TaskQuery;

use crate::http::{
    App,
    access::Grant,
    answer::{ok, problem::Refused},
    request::{self, By, JsonBody},
    tasks::view,
};

/// The largest body.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Tasks read per page, without their parameters. Only their ids are kept.
const PAGE_TASKS: usize = 100;

/// The most tasks that a filter may match: a larger match is refused, and asks for a narrower filter.
const MATCHED_MAX: usize = 1_000_000;

/// Tasks acted on in one call, so that it is answered in time.
const ACTED_MAX: usize = 10_000;

/// Tasks changed in one commit, so that other commits run in between. A commit loads its tasks with their parameters,
/// which may be 1 MiB each.
const CHANGED_AT_ONCE: usize = 64;

/// The count may be off by this part of what was expected.
const TOLERANCE: u64 = 10;

/// Cancels, pauses or resumes all tasks that meet a filter.
///
/// Without `expect` they are only counted. With it they are counted again, and when that is at most a tenth away from
/// what was expected, each gets the command, in batches of 64; one call acts on at most 10,000. Tasks that end or go on between
/// the count and the act are left as they are.
#[utoipa::path(
    post,
    path = "/v1/tasks/bulk", operation_id = "change_tasks",
    tag = "tasks",
    request_body = api::BulkChange,
    responses(
        (status = 200, description = "How many there are, and with how many it was done", body = api::BulkAnswer),
        (status = 400, description = "Malformed, or no filter", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "More or fewer tasks meet the filter than were expected", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    By(by): By,
    grant: Grant,
    JsonBody(text): JsonBody<BODY_BYTES_MAX>,
) -> Result<Response, Refused> {
    let change: api::BulkChange = text.parse()?;
    grant.flow_filter(change.filter.flow.as_deref())?;
    let query = query(&change, app.now().wall)?;
    let found = find(&app, change.action, query).await?;
    let matched = found.len() as u64;
    let Some(expected) = change.expect else {
        return Ok(ok(&api::BulkAnswer { matched, done: 0, refused: 0, left: matched }));
    };
    if matched.abs_diff(expected) > expected / TOLERANCE {
        return Err(Refused::conflict(format!(
            "{matched} tasks meet the filter now, and {expected} were expected, which is more than a tenth off: nothing \
             was done; look at them, and send `expect` as it is now"
        )));
    }
    let acted = &found[..found.len().min(ACTED_MAX)];
    let done = act(&app, change.action, acted, by.as_ref()).await?;
    let refused = acted.len() as u64 - done;
    Ok(ok(&api::BulkAnswer { matched, done, refused, left: matched - acted.len() as u64 }))
}

fn query(change: &api::BulkChange, now: Timestamp) -> Result<TaskQuery, Refused> {
    let filter = &change.filter;
    if *filter == api::BulkFilter::default() {
        return Err(Refused::malformed(
            "`filter` is empty, which would be all tasks: give at least one of status, flow, labels, since, until",
        ));
    }
    if let Some(ended) = filter.status.iter().find(|status| status.is_ended()) {
        return Err(Refused::malformed(format!(
            "`filter.status` has {:?}: no command can {} a task that has ended",
            ended.as_str(),
            change.action.as_str()
        )));
    }
    let wanted = if filter.status.is_empty() { &api::TaskStatus::ALL[..] } else { &filter.status };
    let statuses =
        wanted.iter().copied().filter(|status| !status.is_ended()).map(view::core_status).collect();
    let time = |name: &str, text: &Option<String>| {
        text.as_deref().map(|text| request::past(name, text, now)).transpose()
    };
    Ok(TaskQuery {
        statuses,
        flow: filter.flow.as_deref().map(|flow| request::name("`filter.flow`", flow)).transpose()?,
        labels: filter.labels.clone(),
        since: time("filter.since", &filter.since)?,
        until: time("filter.until", &filter.until)?,
        limit: PAGE_TASKS,
        brief: true,
        ..TaskQuery::default()
    })
}

/// The tasks of which the action would change something, newest first.
async fn find(app: &App, action: api::BulkAction, mut query: TaskQuery) -> Result<Vec<TaskId>, Refused> {
    let mut found = Vec::new();
    loop {
        let page = app.engine.tasks(&query).await?;
        let changing = page.items.iter().filter(|loaded| is_changed(action, &loaded.task));
        found.extend(changing.map(|loaded| loaded.task.id));
        if found.len() > MATCHED_MAX {
            return Err(Refused::malformed(format!(
                "more than {MATCHED_MAX} tasks meet the filter: say more closely which ones, by `since` and `until` for \
                 example"
            )));
        }
        match page.next {
            Some(next) => query.before = Some(next),
            None => return Ok(found),
        }
    }
}

/// Whether the action changes anything of a task.
fn is_changed(action: api::BulkAction, task: &Task) -> bool {
    let state = &task.state;
    let is_held = state.pause.is_paused();
    match action {
        api::BulkAction::Cancel => matches!(state.phase, Phase::Scheduled | Phase::Forward),
        api::BulkAction::Pause => !task.is_ended() && !is_held,
        api::BulkAction::Stop => {
            let runs = || task.open_acts().any(|(_, act)| act.state == ActState::Ready);
            !task.is_ended() && (!is_held || state.pause == Pause::Held && runs())
        }
        // What the engine holds because of a fault is looked at one by one.
        api::BulkAction::Resume => {
            let is_fault = state.stuck.as_ref().is_some_and(|stuck| stuck.kind == StuckKind::EngineFault);
            !task.is_ended() && is_held && !is_fault
        }
    }
}

/// Sends the command to each task. Returns how many accepted it.
async fn act(
    app: &App,
    action: api::BulkAction,
    tasks: &[TaskId],
    by: Option<&Actor>,
) -> Result<u64, Refused> {
    let by = by.cloned();
    let command = match action {
        api::BulkAction::Cancel => Command::Cancel { by },
        api::BulkAction::Pause => Command::Pause { by },
        api::BulkAction::Stop => Command::Stop { by },
        api::BulkAction::Resume => Command::Resume { by },
    };
    let mut done = 0;
    for some in tasks.chunks(CHANGED_AT_ONCE) {
        for told in app.engine.tell_all(some, &command).await? {
            match told {
                Ok(()) => {
                    done += 1;
                    app.metrics.command(action.as_str());
                }
                Err(EngineError::Rejected(_) | EngineError::UnknownTask(_) | EngineError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(done)
}
