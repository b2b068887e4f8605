//! What users see: statuses derived from the state, with what workers have at the moment laid over it.

use std::collections::BTreeSet;

use crate::{Act, ActKey, ActState, Awaited, Direction, Ending, Members, Pause, Phase, Role, Task};

/// What a task is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskStatus {
    /// Waits for its start time.
    Scheduled,
    /// No step was handed out yet.
    Pending,
    /// Steps run.
    Running,
    /// Held, with attempts in flight.
    Pausing,
    /// Held.
    Paused,
    /// Touched steps are undone.
    RollingBack,
    /// All steps done.
    Succeeded,
    /// Failed and undone.
    RolledBack,
    /// Failed with nothing to undo.
    Failed,
    /// Cancelled and undone.
    Cancelled,
    /// Waits for a person.
    Stuck,
}

/// What a step or one of its acts is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStatus {
    /// Not begun.
    Pending,
    /// Waits for a worker or a time.
    Ready,
    /// A worker has it.
    Running,
    /// Done.
    Succeeded,
    /// Failed for good.
    Failed,
    /// Passed over.
    Skipped,
    /// Its undo waits or runs.
    RollingBack,
    /// Undone.
    RolledBack,
    /// Its undo failed for good.
    RollbackFailed,
}

/// The status of a task; `held` are the acts workers have.
#[must_use]
pub fn task_status(task: &Task, held: &BTreeSet<ActKey>) -> TaskStatus {
    let state = &task.state;
    if let Phase::Ended(ending) = state.phase {
        return match ending {
            Ending::Succeeded => TaskStatus::Succeeded,
            Ending::RolledBack => TaskStatus::RolledBack,
            Ending::Failed => TaskStatus::Failed,
            Ending::Cancelled => TaskStatus::Cancelled,
        };
    }
    if state.stuck.is_some() {
        return TaskStatus::Stuck;
    }
    if state.pause == Pause::Held {
        let in_flight = task
            .open_acts()
            .any(|(_, act)| matches!(act.state, ActState::Ready | ActState::Awaiting(Awaited::Child)));
        return if in_flight { TaskStatus::Pausing } else { TaskStatus::Paused };
    }
    match state.phase {
        Phase::Scheduled => TaskStatus::Scheduled,
        Phase::Backward => TaskStatus::RollingBack,
        _ if held.is_empty() && !has_begun(task) => TaskStatus::Pending,
        _ => TaskStatus::Running,
    }
}

/// Whether an attempt was handed out before, also where nobody could say when.
fn has_begun(task: &Task) -> bool {
    let ran = |act: &Act| {
        let waits = matches!(
            act.state,
            ActState::Idle | ActState::Ready | ActState::Parked | ActState::Awaiting(_) | ActState::Fanned
        );
        act.attempt > 1 || act.attempt == 1 && !waits
    };
    let settled = |(_, members): (usize, &Members)| members.side(Direction::Forward).settled() > 0;
    // Of a fanned-out step only its members are handed out.
    let is_done_by_members = |key: ActKey| task.state.steps[key.step].members.is_some() && !key.is_member();
    task.state.started_at.is_some()
        || task.fans().any(settled)
        || task.step_acts().chain(task.open_acts()).any(|(key, act)| !is_done_by_members(key) && ran(act))
}

/// The status of a step; `held` are the acts workers have.
#[must_use]
pub fn step_status(task: &Task, step: usize, held: &BTreeSet<ActKey>) -> StepStatus {
    let undo = &task.state.steps[step].undo;
    if task.flow.steps[step].role == Role::OnError {
        return act_status(undo, held.contains(&ActKey::rollback(step)));
    }
    match undo.state {
        ActState::Ready
        | ActState::Parked
        | ActState::Delayed { .. }
        | ActState::Awaiting(_)
        | ActState::Fanned => StepStatus::RollingBack,
        ActState::Succeeded => StepStatus::RolledBack,
        ActState::Failed => StepStatus::RollbackFailed,
        ActState::Idle | ActState::Skipped if has_open_member(task, step) => StepStatus::Running,
        ActState::Idle | ActState::Skipped => {
            act_status(&task.state.steps[step].forward, held.contains(&ActKey::forward(step)))
        }
    }
}

/// Whether members of the step are still being done, also when its task has turned around.
fn has_open_member(task: &Task, step: usize) -> bool {
    let members = task.state.steps[step].members.as_ref();
    members.is_some_and(|members| !members.side(Direction::Forward).open.is_empty())
}

/// The status of one act by itself.
#[must_use]
pub fn act_status(act: &Act, held: bool) -> StepStatus {
    match act.state {
        ActState::Idle => StepStatus::Pending,
        ActState::Ready if held => StepStatus::Running,
        ActState::Fanned | ActState::Awaiting(Awaited::Child) => StepStatus::Running,
        ActState::Delayed { .. } if act.attempt == 0 => StepStatus::Pending,
        ActState::Ready | ActState::Parked | ActState::Delayed { .. } | ActState::Awaiting(_) => {
            StepStatus::Ready
        }
        ActState::Succeeded => StepStatus::Succeeded,
        ActState::Failed => StepStatus::Failed,
        ActState::Skipped => StepStatus::Skipped,
    }
}

/// Whether the worker that has this act's attempt should stop: its task turned around, or its deadline passed.
#[must_use]
pub fn is_to_stop(task: &Task, key: ActKey) -> bool {
    let turned = key.direction == Direction::Forward && task.state.phase == Phase::Backward;
    task.act(key).is_some_and(|act| act.state == ActState::Ready && (turned || act.overdue))
}
