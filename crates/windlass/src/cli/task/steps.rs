//! The steps of a task as a table, and the colours of statuses. Shared by `show`, `watch` and the live view.

use jiff::Timestamp;
use windlass_api::{Progress, Step, StepRollback, StepStatus, Task, TaskStatus};

use super::members;
use crate::cli::output::{
    table::{Cell, Color, Table},
    time::{age, elapsed},
};

/// The table of the steps of `task`.
pub(crate) fn table(task: &Task, now: Timestamp) -> Table {
    let mut table = Table::new(["STEP", "STATUS", "TRIES", "TIME", "ROLLBACK", "MESSAGE"]);
    for step in &task.steps {
        table.row([
            (&step.name).into(),
            step_status(step.status),
            count(step.attempts).into(),
            taken(step, now).into(),
            step.rollback.as_ref().map(rollback_status).unwrap_or_default().into(),
            message(step, now).into(),
        ]);
    }
    table
}

/// The status of a task in its colour.
pub(crate) fn task_status(status: TaskStatus) -> Cell {
    Cell::colored(status.as_str(), task_color(status))
}

/// The colour of a task's status.
pub(crate) fn task_color(status: TaskStatus) -> Option<Color> {
    match status {
        TaskStatus::Succeeded => Some(Color::Good),
        TaskStatus::Running => Some(Color::Active),
        TaskStatus::RollingBack | TaskStatus::RolledBack | TaskStatus::Cancelled => Some(Color::Warning),
        TaskStatus::Failed | TaskStatus::Stuck => Some(Color::Bad),
        TaskStatus::Scheduled | TaskStatus::Pending | TaskStatus::Pausing | TaskStatus::Paused => None,
    }
}

/// The status of a step in its colour.
pub(crate) fn step_status(status: StepStatus) -> Cell {
    let color = match status {
        StepStatus::Succeeded => Some(Color::Good),
        StepStatus::Running => Some(Color::Active),
        StepStatus::RollingBack | StepStatus::RolledBack => Some(Color::Warning),
        StepStatus::Failed | StepStatus::RollbackFailed => Some(Color::Bad),
        StepStatus::Pending | StepStatus::Skipped => Some(Color::Faint),
        StepStatus::Ready => None,
    };
    Cell::colored(status.as_str(), color)
}

/// The number of attempts; empty before the first.
pub(crate) fn count(attempts: u32) -> String {
    if attempts == 0 { String::new() } else { attempts.to_string() }
}

/// How long the step has taken so far, without its rollback.
fn taken(step: &Step, now: Timestamp) -> String {
    step.started_at.map(|started| elapsed(started, step.ended_at.unwrap_or(now))).unwrap_or_default()
}

/// The status of the rollback; empty before it starts.
pub(crate) fn rollback_status(rollback: &StepRollback) -> String {
    match rollback.attempts {
        0 if rollback.status != StepStatus::Ready => String::new(),
        0 | 1 => rollback.status.as_str().to_owned(),
        attempts => format!("{} ({attempts} tries)", rollback.status.as_str()),
    }
}

/// The message for a step: the failure of its rollback, or else its own, then the next event.
fn message(step: &Step, now: Timestamp) -> String {
    let rollback = step.rollback.as_ref();
    let mut parts = Vec::new();
    if let Some(trouble) = rollback.and_then(|rollback| rollback.message.as_ref()).or(step.message.as_ref()) {
        parts.push(trouble.clone());
    }
    parts.extend(step.members.as_ref().map(members::summary));
    parts.extend(step.progress.as_ref().map(progress));
    if let Some(due) = rollback.and_then(|rollback| rollback.due_at).or(step.due_at).filter(|due| *due > now)
    {
        // A start delay applies before the first attempt.
        let is_first = step.attempts == 0 && rollback.is_none_or(|rollback| rollback.due_at.is_none());
        parts.push(format!("{} {}", if is_first { "begins" } else { "next try" }, age(due, now)));
    }
    let waits = rollback.and_then(|rollback| rollback.waits_for.as_ref()).or(step.waits_for.as_ref());
    parts.extend(waits.map(|what| format!("waits for {what}")));
    if let Some(worker) = rollback.and_then(|rollback| rollback.worker.as_ref()).or(step.worker.as_ref()) {
        parts.push(format!("on {worker}"));
    }
    parts.join("; ")
}

/// The progress that an attempt has reported.
pub(crate) fn progress(progress: &Progress) -> String {
    let value = progress.value.map(|value| format!("{:.0}%", value * 100.0));
    value.into_iter().chain(progress.message.clone()).collect::<Vec<_>>().join(" ")
}
