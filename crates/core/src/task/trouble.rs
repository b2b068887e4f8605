//! What waits for a person: the one place that says which failed act does, and what may be decided of it.

use crate::{
    ActKey, ActState, Direction, OnFailure, Phase, ResolutionKind, Role, Stuck, StuckKind, Task, step_name,
};

/// What a failed act of an unfinished task waits for a person for.
#[must_use]
pub fn trouble(task: &Task, key: ActKey) -> Option<Stuck> {
    let act = task.act(key).filter(|act| act.state == ActState::Failed && !key.is_member())?;
    let forward = key.direction == Direction::Forward;
    let members = task.state.steps[key.step].members.as_ref();
    let deaths_max = task.flow.deaths_max;
    let poisoned = act.deaths >= deaths_max
        || members.is_some_and(|members| members.has_poisoned(key.direction, deaths_max));
    let kind = match task.flow.on_failure {
        // On the way back a step that failed is undone like any other.
        _ if forward && task.state.phase != Phase::Forward => return None,
        _ if forward && task.flow.tolerates(key.step) => return None,
        // Trying it again, forward or back, may kill another worker: a person must look first.
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
        StuckKind::Held | StuckKind::EngineFault => format!("step {name} failed and is held: {message}"),
    };
    Stuck { kind, step: Some(step), message: message.into() }
}

/// What a person may decide of an act that waits for one. A task that goes back already cannot be told to.
#[must_use]
pub fn choices(task: &Task) -> &'static [ResolutionKind] {
    use ResolutionKind::{Done, Retry, Rollback, Skip};
    match task.state.phase {
        Phase::Scheduled | Phase::Forward => &[Retry, Skip, Done, Rollback],
        Phase::Backward => &[Retry, Skip, Done],
        Phase::Ended(_) => &[],
    }
}
