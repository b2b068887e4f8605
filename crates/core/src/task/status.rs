//! Statuses for users: derived from the state and the current claims.

use std::collections::BTreeSet;

use crate::{Act, ActKey, ActState, Awaited, Direction, Ending, Members, Pause, Phase, Role, Task};

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskStatus {
    /// Waits for its start time.
    Scheduled,
    /// No step was handed out yet.
    Pending,
    /// Steps run.
    Running,
    /// Paused, with attempts in flight.
    Pausing,
    /// Paused.
    Paused,
    /// Steps that may have had effects are rolled back.
    RollingBack,
    /// All steps are completed.
    Succeeded,
    /// Failed and rolled back.
    RolledBack,
    /// Failed with nothing to roll back.
    Failed,
    /// Cancelled and rolled back.
    Cancelled,
    /// Waits for an operator.
    Stuck,
}

/// The status of a step or of one of its executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStatus {
    /// Not started.
    Pending,
    /// Waits for a worker or a time.
    Ready,
    /// A worker runs it.
    Running,
    /// Completed.
    Succeeded,
    /// Failed without a further retry.
    Failed,
    /// Skipped.
    Skipped,
    /// Its rollback waits or runs.
    RollingBack,
    /// Rolled back.
    RolledBack,
    /// Its rollback failed without a further retry.
    RollbackFailed,
}

impl Pause {
    /// Whether the task is paused: nothing new starts.
    #[must_use]
    pub fn is_paused(self) -> bool {
        self != Self::None
    }

    /// Whether workers must stop the attempts that they have.
    #[must_use]
    pub fn stops(self) -> bool {
        matches!(self, Self::Stopping | Self::Suspended)
    }
}

/// The status of a task; `held` are the claimed executions.
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
    if state.pause.is_paused() {
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

/// Whether an attempt was handed out before, even if the time is unknown.
fn has_begun(task: &Task) -> bool {
    let ran = |act: &Act| {
        let waits = matches!(
            act.state,
            ActState::Idle | ActState::Ready | ActState::Parked | ActState::Awaiting(_) | ActState::Fanned
        );
        act.attempt > 1 || act.attempt == 1 && !waits
    };
    let settled = |(_, members): (usize, &Members)| members.side(Direction::Forward).settled() > 0;
    // For a fanned-out step, only its items are handed out.
    let is_done_by_members = |key: ActKey| task.state.steps[key.step].members.is_some() && !key.is_member();
    task.state.started_at.is_some()
        || task.fans().any(settled)
        || task.step_acts().chain(task.open_acts()).any(|(key, act)| !is_done_by_members(key) && ran(act))
}

/// The status of a step; `held` are the claimed executions.
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

/// Whether items of the step are still open, also after its task started rolling back.
fn has_open_member(task: &Task, step: usize) -> bool {
    let members = task.state.steps[step].members.as_ref();
    members.is_some_and(|members| !members.side(Direction::Forward).open.is_empty())
}

/// The status of one execution by itself.
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

/// Whether the worker that has claimed this attempt must stop: its task started rolling back or was stopped, or its
/// deadline passed.
#[must_use]
pub fn is_to_stop(task: &Task, key: ActKey) -> bool {
    let turned = key.direction == Direction::Forward && task.state.phase == Phase::Backward;
    let stopped = task.state.pause.stops();
    task.act(key).is_some_and(|act| act.state == ActState::Ready && (turned || stopped || act.overdue))
}
