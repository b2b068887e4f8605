//! Failures that wait for an operator: the only place that determines them, and the possible decisions.

use crate::{
    ActKey, ActState, Direction, OnFailure, Phase, ResolutionKind, Role, Stuck, StuckKind, Task, step_name,
};

/// Why a failed execution of an unfinished task waits for an operator; `None` = it does not.
#[must_use]
pub fn trouble(task: &Task, key: ActKey) -> Option<Stuck> {
    let act = task.act(key).filter(|act| act.state == ActState::Failed && !key.is_member())?;
    let forward = key.direction == Direction::Forward;
    let members = task.state.steps[key.step].members.as_ref();
    let deaths_max = task.flow.deaths_max;
    let poisoned = act.deaths >= deaths_max
        || members.is_some_and(|members| members.has_poisoned(key.direction, deaths_max));
    let kind = match task.flow.on_failure {
        // During the rollback a failed step is rolled back like any other.
        _ if forward && task.state.phase != Phase::Forward => return None,
        _ if forward && task.flow.tolerates(key.step) => return None,
        // Another attempt, forward or rollback, may kill another worker: an operator must look first.
        _ if poisoned => StuckKind::Poisoned,
        _ if !forward => StuckKind::RollbackFailed,
        OnFailure::Hold => StuckKind::Held,
        OnFailure::Rollback => return None,
    };
    let message = act.failure.as_ref().map_or("failed", |failure| &*failure.message);
    Some(describe(task, kind, key.step, message))
}

fn describe(task: &Task, kind: StuckKind, step: usize, message: &str) -> Stuck {
    let name = step_name(task, step);
    let on_error = task.flow.steps[step].role == Role::OnError;
    let message = match kind {
        StuckKind::RollbackFailed if on_error => format!("the step for errors, {name}, failed: {message}"),
        StuckKind::RollbackFailed => format!("the rollback of step {name} failed: {message}"),
        StuckKind::Poisoned => format!("step {name} is poisoned: {message}"),
        StuckKind::Held | StuckKind::EngineFault | StuckKind::QueueBlocked => {
            format!("step {name} failed and is held: {message}")
        }
    };
    Stuck { kind, step: Some(step), message: message.into() }
}

/// The possible decisions about an execution that waits for an operator. A task that is already rolling back does not
/// offer `rollback`.
#[must_use]
pub fn choices(task: &Task) -> &'static [ResolutionKind] {
    use ResolutionKind::{Done, Retry, Rollback, Skip};
    match task.state.phase {
        Phase::Scheduled | Phase::Forward => &[Retry, Skip, Done, Rollback],
        Phase::Backward => &[Retry, Skip, Done],
        Phase::Ended(_) => &[],
    }
}
