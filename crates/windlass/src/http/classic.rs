//! The classic documents: a task as `?view=classic` shows it, and the message a step is on a module's queue.
//!
//! Their field names and numbers are those of the system Windlass takes the place of; programs written for it
//! read them, so they change never.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use windlass_core::{
    Act, ActKey, ActState, Action, Direction, Millis, RetryBy, Role, Task, TaskStatus, Timestamp, task_status,
};
use windlass_engine::ports::Loaded;

use super::view::payload;

/// A task as the classic system stored it. Times are Unix seconds.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ClassicTask {
    /// Its id.
    task_id: String,
    /// 0 succeeded, 1 not started, 2 running, 3 rolling back; failed are 4 rolled back, 5 with nothing to undo,
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
        let handed_out_at = loaded.begun().map(|claim| claim.at).min();
        Self {
            task_id: task.id.to_string(),
            task_status: status_number(task_status(task, &loaded.held()), task),
            task_message: task.message(),
            task_cursor: task.cursor(),
            time_create: seconds(task.input.created_at),
            time_start: task.state.started_at.or(handed_out_at).map(seconds),
            time_end: task.state.ended_at.map(seconds),
            parameters: payload(&task.outcome()),
            steps: (0..task.state.steps.len()).map(|index| step(loaded, index)).collect(),
        }
    }
}

fn step(loaded: &Loaded, index: usize) -> ClassicStep {
    let definition = &loaded.task.flow.steps[index];
    // The step for errors has its turn on the way back.
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

/// A step as a message on the queue of its module.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct StepMessage {
    /// Id of the task.
    pub task_id: String,
    /// Index of the step the message is about; on the way back it is not that of the task.
    pub cursor: usize,
    /// 0 = do it, 1 = undo it.
    pub r#type: u8,
    /// The parameters, with the results of the steps before.
    #[schema(value_type = Object)]
    pub parameters: Box<RawValue>,
    /// Whose work it is.
    pub module: String,
    /// What to do.
    pub command: String,
    /// Seconds that all attempts of the module together may take.
    pub timeout: u64,
    /// How often the module tries again by itself: 0 where the engine makes the retries.
    pub retry: u32,
}

impl StepMessage {
    /// The message of an act of `task`; nothing where the flow has no such act.
    #[must_use]
    pub fn new(task: &Task, key: ActKey) -> Option<Self> {
        let action = task.action(key)?;
        Some(Self {
            task_id: task.id.to_string(),
            cursor: key.step,
            r#type: match key.direction {
                Direction::Forward => 0,
                Direction::Rollback => 1,
            },
            parameters: payload(&task.params_for(key)),
            module: module(action),
            command: command(action),
            timeout: timeout_seconds(action),
            retry: match task.flow.retry_by {
                RetryBy::Engine => 0,
                RetryBy::Module => action.retry.max,
            },
        })
    }
}

/// The classic timeout is the deadline over all attempts, where there is one. Part of a second counts as one.
fn timeout_seconds(action: &Action) -> u64 {
    let Millis(ms) = action.deadline.unwrap_or(action.timeout);
    ms.div_ceil(1000)
}

fn seconds(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_core::{Input, Json, TaskId};

    use super::*;
    use crate::flowfile::{self, Format};

    fn task(settings: &str) -> Task {
        let step = r#"{ "name": "init", "run": "mysql.init", "timeout": "1500ms", "retry": 3,
                        "rollback": { "run": "mysql.clean", "timeout": "10m", "deadline": "15m", "retry": 2 } }"#;
        let text =
            format!(r#"{{ "flow": "f", {settings} "params": {{ "region": "eu" }}, "steps": [{step}] }}"#);
        let sources = flowfile::read(&text, Format::Json).unwrap();
        let input = Input::new(Json::parse(r#"{"Cpu":4}"#).unwrap(), Timestamp(0));
        Task::new(TaskId(7), Arc::new(flowfile::compile(&sources[0]).unwrap()), Arc::new(input))
    }

    fn message(task: &Task, key: ActKey) -> String {
        serde_json::to_string(&StepMessage::new(task, key).unwrap()).unwrap()
    }

    #[test]
    fn a_message_has_the_classic_fields_and_no_others() {
        let module = task(r#""retry_by": "module","#);
        assert_eq!(
            message(&module, ActKey::forward(0)),
            r#"{"TaskId":"00000000-0000-0000-0000-000000000007","Cursor":0,"Type":0,"Parameters":{"region":"eu","Cpu":4},"Module":"mysql","Command":"init","Timeout":2,"Retry":3}"#
        );
        assert_eq!(
            message(&module, ActKey::rollback(0)),
            r#"{"TaskId":"00000000-0000-0000-0000-000000000007","Cursor":0,"Type":1,"Parameters":{"region":"eu","Cpu":4},"Module":"mysql","Command":"clean","Timeout":900,"Retry":2}"#
        );
    }

    #[test]
    fn retries_of_the_engine_are_not_multiplied_by_the_module() {
        let engine = task("");
        assert!(message(&engine, ActKey::forward(0)).contains(r#""Retry":0"#));
        assert!(StepMessage::new(&engine, ActKey::forward(1)).is_none());
    }
}
