//! An attempt failed: another one is made, or the act has failed for good.

use super::{attempts, report, turn_back};
use crate::{
    ActKey, ActState, Attempt, Cause, DEATHS_MAX, Direction, EventKind, Failure, Millis, OnFailure, Phase,
    Rejection, RetryBy, Role, Stuck, StuckKind,
    draft::Draft,
    planted::{Bug, is_planted},
    retry_delay, step_name,
};

/// The code of a step whose parameters do not fit its definition (`EX_DATAERR`).
pub const DATA_CODE: i32 = 65;

/// The code of an attempt that ran longer than its timeout, as of the program `timeout`.
pub const TIMEOUT_CODE: i32 = 124;

/// The code of a step whose deadline passed.
pub const DEADLINE_CODE: i32 = 125;

/// The worker did not end the attempt within its timeout.
pub(super) fn time_out(draft: &mut Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    report::check_current(draft, attempt)?;
    report::start(draft, attempt);
    let timeout = draft.task.action(attempt.key).map_or(Millis(0), |action| action.timeout);
    let message = format!("timed out after {timeout}");
    fail(draft, attempt.key, Failure::new(&message, TIMEOUT_CODE, true));
    Ok(())
}

/// The current attempt failed.
pub(super) fn fail(draft: &mut Draft<'_>, key: ActKey, failure: Failure) {
    let (Some(act), Some(action)) = (draft.task.act(key), draft.task.action(key)) else { return };
    let now = draft.context.now;
    let retries_left = draft.task.flow.retry_by == RetryBy::Engine
        && (act.failures < action.retry.max || is_planted(Bug::NoRetryLimit));
    let until = now + retry_delay(&action.retry, draft.task.id, key, act.failures + 1);
    let in_time = act.deadline_at.is_none_or(|deadline_at| until < deadline_at);
    if failure.retryable && retries_left && in_time && !is_last_chance(draft, key) {
        let attempt = act.attempt;
        draft.emit(EventKind::ActRetrying { key, attempt, until, failure });
        if until <= now {
            attempts::begin(draft, key);
        }
    } else {
        fail_for_good(draft, key, failure);
    }
}

/// The act cannot be done with the parameters it has.
pub(super) fn fail_on_data(draft: &mut Draft<'_>, key: ActKey, message: &str) {
    fail_for_good(draft, key, Failure::new(message, DATA_CODE, false));
}

/// The act failed and is not tried again.
pub(super) fn fail_for_good(draft: &mut Draft<'_>, key: ActKey, failure: Failure) {
    // A member whose parameters do not fit fails before it has begun.
    let act = draft.task.act(key);
    // When the deadline passed first, that is what failed the step.
    let overdue = act.filter(|act| act.overdue).and_then(|act| act.failure.clone());
    let failure = overdue.unwrap_or(failure);
    let attempt = act.map_or(0, |act| act.attempt);
    draft.emit(EventKind::ActFailed { key, attempt, failure });
    if key.is_member() {
        // What that means for the step is settled once the task proceeds.
        return;
    }
    if let Some(stuck) = trouble(draft, key) {
        draft.emit(EventKind::AlarmRaised { stuck });
    } else if key.direction == Direction::Forward
        && draft.task.state.phase == Phase::Forward
        && !draft.task.flow.tolerates(key.step)
    {
        turn_back::turn_back(draft, Cause::Failure { step: key.step });
    }
    // Else the task turned around before: this was waited for, and is undone with the rest.
}

/// Whether the current attempt is the last one whatever comes of it: its task has turned around, or its
/// deadline has passed.
pub(super) fn is_last_chance(draft: &Draft<'_>, key: ActKey) -> bool {
    let turned = key.direction == Direction::Forward && draft.task.state.phase == Phase::Backward;
    turned || draft.task.act(key).is_some_and(|act| act.overdue)
}

/// What a failed act of an unfinished task waits for a person for.
pub(super) fn trouble(draft: &Draft<'_>, key: ActKey) -> Option<Stuck> {
    let act = draft.task.act(key).filter(|act| act.state == ActState::Failed && !key.is_member())?;
    let forward = key.direction == Direction::Forward;
    let members = draft.task.state.steps[key.step].members.as_ref();
    let poisoned =
        act.deaths >= DEATHS_MAX || members.is_some_and(|members| members.side(key.direction).poisoned > 0);
    let kind = match draft.task.flow.on_failure {
        // On the way back a step that failed is undone like any other.
        _ if forward && draft.task.state.phase != Phase::Forward => return None,
        _ if forward && draft.task.flow.tolerates(key.step) => return None,
        // Trying it again, forward or back, may kill another worker: a person must look first.
        _ if poisoned => StuckKind::Poisoned,
        _ if !forward => StuckKind::RollbackFailed,
        OnFailure::Hold => StuckKind::Held,
        OnFailure::Rollback => return None,
    };
    let message = act.failure.as_ref().map_or_else(|| "failed".into(), |failure| failure.message.clone());
    Some(describe(draft, kind, key.step, &message))
}

fn describe(draft: &Draft<'_>, kind: StuckKind, step: usize, message: &str) -> Stuck {
    let name = step_name(&draft.task, step);
    let on_error = draft.task.flow.steps[step].role == Role::OnError;
    let message = match kind {
        StuckKind::RollbackFailed if on_error => format!("the step for errors, {name}, failed: {message}"),
        StuckKind::RollbackFailed => format!("the rollback of step {name} failed: {message}"),
        StuckKind::Poisoned => format!("step {name} is poisoned: {message}"),
        StuckKind::Held | StuckKind::EngineFault => format!("step {name} failed and is held: {message}"),
    };
    Stuck { kind, step: Some(step), message: message.into() }
}
