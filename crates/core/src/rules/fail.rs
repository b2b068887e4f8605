//! A failed attempt: another one is made, or the execution fails without a further retry.

use super::{attempts, report, stop, turn_back};
use crate::{
    ActKey, Attempt, Cause, Direction, EventKind, Failure, Millis, Phase, Rejection, RetryBy,
    planted::{Bug, is_planted},
    retry_delay,
    transition::draft::Draft,
};

/// The code of a step whose parameters do not match its definition (`EX_DATAERR`).
pub const DATA_CODE: i32 = 65;

/// The code of an attempt that ran longer than its timeout, as of the program `timeout`.
pub const TIMEOUT_CODE: i32 = 124;

/// The failure message of a step whose deadline passed.
pub(crate) const DEADLINE_PASSED: &str = "the step's deadline passed";

/// The code of a step whose deadline passed.
pub const DEADLINE_CODE: i32 = 125;

/// The worker did not end the attempt within its timeout.
pub(super) fn time_out(draft: &mut Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    report::check_current(draft, attempt)?;
    let key = attempt.key;
    let allowed = allowed(draft, attempt);
    report::start(draft, attempt);
    let timeout = draft.task.action(key).map_or(allowed, |action| action.timeout);
    if draft.is_afar(key) && !is_turned(draft, key) && !is_planted(Bug::LostAnswerIsFinal) {
        // The settle time of a device is not part of its timeout.
        return unanswered(draft, attempt, allowed.min(timeout));
    }
    if allowed >= timeout && stop::is_stopped(draft, key) {
        stop::end(draft, key);
        return Ok(());
    }
    let failure = if allowed < timeout {
        Failure::new(DEADLINE_PASSED, DEADLINE_CODE, false)
    } else {
        Failure::new(&format!("timed out after {timeout}"), TIMEOUT_CODE, true)
    };
    fail(draft, key, failure);
    Ok(())
}

/// The maximum duration of an attempt from its claim, as it was when the claim was made. If the deadline of all attempts
/// started with this claim, it counts here, whether or not its start was recorded since.
fn allowed(draft: &Draft<'_>, attempt: &Attempt) -> Millis {
    let key = attempt.key;
    let allowed = draft.task.time_allowed(key).unwrap_or_default();
    let deadline = draft.task.action(key).and_then(|action| action.deadline);
    let (Some(at), Some(deadline)) = (attempt.started_at, deadline) else { return allowed };
    let ends_at = report::not_before_ready(draft, attempt, at) + deadline;
    let started_here = draft.task.act(key).is_some_and(|act| act.deadline_at == Some(ends_at));
    if started_here { allowed.min(deadline) } else { allowed }
}

/// Handles a missing answer over the broker. The engine cannot distinguish a lost answer from a slow or dead module, so
/// another attempt is made as far as `retry` allows, also if a module makes the retries after failures.
fn unanswered(draft: &mut Draft<'_>, attempt: &Attempt, allowed: Millis) -> Result<(), Rejection> {
    let key = attempt.key;
    draft.emit(EventKind::ActUnanswered { key, attempt: attempt.number });
    let failure = Failure::new(&format!("no answer came within {allowed}"), TIMEOUT_CODE, true);
    fail_with(draft, key, failure, true);
    Ok(())
}

/// Handles a failure of the current attempt.
pub(super) fn fail(draft: &mut Draft<'_>, key: ActKey, failure: Failure) {
    let retries = draft.task.flow.retry_by == RetryBy::Engine;
    fail_with(draft, key, failure, retries);
}

/// Handles a failure of the current attempt; the engine makes another one only if `retries` is true.
fn fail_with(draft: &mut Draft<'_>, key: ActKey, failure: Failure, retries: bool) {
    let (Some(act), Some(action)) = (draft.task.act(key), draft.task.action(key)) else { return };
    let now = draft.context.now;
    let failures = if is_planted(Bug::RetryCutShort) { act.failures + 1 } else { act.failures };
    let retries_left = retries && (failures < action.retry.max || is_planted(Bug::NoRetryLimit));
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

/// Fails an execution whose parameters make it impossible.
pub(super) fn fail_on_data(draft: &mut Draft<'_>, key: ActKey, message: &str) {
    fail_for_good(draft, key, Failure::new(message, DATA_CODE, false));
}

/// Fails an execution without a further retry.
pub(super) fn fail_for_good(draft: &mut Draft<'_>, key: ActKey, failure: Failure) {
    // An item with invalid parameters fails before it has started.
    let act = draft.task.act(key);
    // If the deadline passed first, that is the cause of the failure.
    let overdue = act.filter(|act| act.overdue).and_then(|act| act.failure.clone());
    let failure = overdue.unwrap_or(failure);
    let attempt = act.map_or(0, |act| act.attempt);
    draft.emit(EventKind::ActFailed { key, attempt, failure });
    if key.is_member() {
        // The consequences for the step follow when the task proceeds.
        return;
    }
    if let Some(stuck) = crate::task::trouble(&draft.task, key) {
        draft.emit(EventKind::AlarmRaised { stuck });
    } else if key.direction == Direction::Forward
        && draft.task.state.phase == Phase::Forward
        && !draft.task.flow.tolerates(key.step)
    {
        turn_back::turn_back(draft, Cause::Failure { step: key.step });
    }
    // Otherwise the task was already rolling back: this end was awaited, and is rolled back with the rest.
}

/// Whether the current attempt is the last one in any case: its task is rolling back, or its deadline has passed.
pub(super) fn is_last_chance(draft: &Draft<'_>, key: ActKey) -> bool {
    is_turned(draft, key) || draft.task.act(key).is_some_and(|act| act.overdue)
}

/// Whether the task started rolling back while this forward execution was in flight.
fn is_turned(draft: &Draft<'_>, key: ActKey) -> bool {
    key.direction == Direction::Forward && draft.task.state.phase == Phase::Backward
}
