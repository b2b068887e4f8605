//! The steps that a task is at, for its line in a list.

use std::collections::BTreeSet;

use windlass_api as api;
use windlass_core::{ActKey, Cause, Role, StepStatus, Task, step_status};
use windlass_store::Loaded;

use crate::http::tasks::view;

/// Steps named of one task: more run at once only in wide flows.
const CURRENT_MAX: usize = 16;

/// The steps that run, wait or are rolled back; for a failed task, the step that failed.
pub(in crate::http) fn steps(loaded: &Loaded) -> Vec<api::CurrentStep> {
    let task = &loaded.task;
    let held: BTreeSet<ActKey> = loaded.begun().map(|claim| claim.key).collect();
    let failed = failed(task);
    let mut current = Vec::new();
    for index in 0..task.state.steps.len() {
        let status = step_status(task, index, &held);
        let is_current = match status {
            _ if task.is_ended() => failed == Some(index),
            StepStatus::Ready
            | StepStatus::Running
            | StepStatus::RollingBack
            | StepStatus::RollbackFailed => true,
            StepStatus::Failed => task.state.stuck.as_ref().is_some_and(|stuck| stuck.step == Some(index)),
            // A delay comes before the first attempt.
            StepStatus::Pending => view::due_at(&task.state.steps[index].forward).is_some(),
            StepStatus::Succeeded | StepStatus::Skipped | StepStatus::RolledBack => false,
        };
        if is_current {
            current.push(step(task, index, status, &held));
        }
        if current.len() == CURRENT_MAX {
            break;
        }
    }
    current
}

/// The step whose failure ended the task.
fn failed(task: &Task) -> Option<usize> {
    match task.state.cause.as_ref()? {
        Cause::Failure { step } | Cause::GivenUp { step, .. } => Some(*step),
        Cause::Cancel { .. }
        | Cause::Deadline
        | Cause::Parent
        | Cause::ResultTooLarge { .. }
        | Cause::Rollout { .. } => None,
    }
}

fn step(task: &Task, index: usize, status: StepStatus, held: &BTreeSet<ActKey>) -> api::CurrentStep {
    let (definition, state) = (&task.flow.steps[index], &task.state.steps[index]);
    let is_undone = definition.role == Role::OnError
        || matches!(status, StepStatus::RollingBack | StepStatus::RollbackFailed);
    let key = if is_undone { ActKey::rollback(index) } else { ActKey::forward(index) };
    let act = state.act(key.direction);
    let action = definition.rollback.as_ref().filter(|_| is_undone).unwrap_or(&definition.run);
    let trouble = act.trouble().or_else(|| state.forward.trouble());
    api::CurrentStep {
        name: definition.name.to_string(),
        status: view::act_word(status),
        message: trouble.map(|failure| failure.message.to_string()),
        attempts: view::attempts(act, held.contains(&key)),
        due_at: view::due_at(act).map(view::time),
        waits_for: view::waits_for(act, action),
    }
}
