//! The classic document: a task as `?view=classic` shows it.
//!
//! Its field names and numbers are those of the system Windlass takes the place of; programs written for it
//! read them, so they change never.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use windlass_core::{Act, ActKey, ActState, Action, Role, Task, TaskStatus, Timestamp, task_status};
use windlass_store::Loaded;

use crate::brokers::timeout_seconds;
use crate::http::tasks::view::{payload, started_at};

/// A task as the classic system stored it. Times are Unix seconds.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ClassicTask {
    /// Its id.
    task_id: String,
    /// 0 succeeded, 1 not started, 2 running, 3 rolling back; failed are 4 rolled back, 5 with nothing to roll back,
    /// 6 cancelled, 7 stuck.
    task_status: u8,
    /// Why it failed.
    task_message: Option<String>,
    /// Index of the furthest step reached.
    task_cursor: usize,
    /// When it was accepted.
    time_create: i64,
    /// When its first step was handed out.
    time_start: Option<i64>,
    /// When it ended.
    time_end: Option<i64>,
    /// What the caller sent, what all steps need, and what each finished step returned.
    #[schema(value_type = Object)]
    parameters: Box<RawValue>,
    /// Its steps.
    steps: Vec<ClassicStep>,
}

/// A step as the classic system stored it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
struct ClassicStep {
    /// 0 until it failed, then its exit code.
    code: i32,
    /// Why it failed.
    message: Option<String>,
    /// When it was first handed out.
    time_start: Option<i64>,
    /// When it was settled.
    time_end: Option<i64>,
    normal_module: String,
    normal_command: String,
    /// In seconds, over all attempts together.
    normal_timeout: u64,
    normal_retry: u32,
    /// Null where the step has no rollback.
    rollback_module: Option<String>,
    rollback_command: Option<String>,
    /// In seconds, over all attempts together.
    rollback_timeout: Option<u64>,
    rollback_retry: Option<u32>,
}

impl ClassicTask {
    /// The classic document of a task.
    pub(crate) fn new(loaded: &Loaded) -> Self {
        let task = &loaded.task;
        Self {
            task_id: task.id.to_string(),
            task_status: status_number(task_status(task, &loaded.held()), task),
            task_message: task.message(),
            task_cursor: task.cursor(),
            time_create: seconds(task.input.created_at),
            time_start: started_at(loaded).map(seconds),
            time_end: task.state.ended_at.map(seconds),
            parameters: payload(&task.outcome()),
            steps: (0..task.state.steps.len()).map(|index| step(loaded, index)).collect(),
        }
    }
}

fn step(loaded: &Loaded, index: usize) -> ClassicStep {
    let definition = &loaded.task.flow.steps[index];
    // The step for errors runs during rollback.
    let key = match definition.role {
        Role::Plain => ActKey::forward(index),
        Role::OnError => ActKey::rollback(index),
    };
    let act = loaded.task.state.steps[index].act(key.direction);
    let claim = loaded.begun().find(|claim| claim.key == key);
    let (run, rollback) = (&definition.run, definition.rollback.as_ref());
    ClassicStep {
        code: code(act),
        message: act.trouble().map(|failure| failure.message.to_string()),
        time_start: act.started_at.or(claim.map(|claim| claim.at)).map(seconds),
        time_end: act.ended_at.map(seconds),
        normal_module: module(run),
        normal_command: command(run),
        normal_timeout: timeout_seconds(run),
        normal_retry: run.retry.max,
        rollback_module: rollback.map(module),
        rollback_command: rollback.map(command),
        rollback_timeout: rollback.map(timeout_seconds),
        rollback_retry: rollback.map(|action| action.retry.max),
    }
}

/// Its queue; classic documents know nothing else that does a step.
fn module(action: &Action) -> String {
    action.worker().map(|(module, _)| module.to_string()).unwrap_or_default()
}

fn command(action: &Action) -> String {
    action.worker().map(|(_, command)| command.to_string()).unwrap_or_default()
}

/// 0 until the step has failed for good.
fn code(act: &Act) -> i32 {
    match (&act.failure, act.state) {
        (Some(failure), ActState::Failed) => failure.code,
        (None, ActState::Failed) => 1,
        _ => 0,
    }
}

fn status_number(status: TaskStatus, task: &Task) -> u8 {
    match status {
        TaskStatus::Succeeded => 0,
        TaskStatus::Scheduled | TaskStatus::Pending => 1,
        TaskStatus::Running => 2,
        // A paused task goes on where it was, forward or back.
        TaskStatus::Pausing | TaskStatus::Paused => match task.state.cause {
            None => 2,
            Some(_) => 3,
        },
        TaskStatus::RollingBack => 3,
        TaskStatus::RolledBack => 4,
        TaskStatus::Failed => 5,
        TaskStatus::Cancelled => 6,
        TaskStatus::Stuck => 7,
    }
}

fn seconds(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
}
