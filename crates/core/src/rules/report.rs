//! A worker reports the outcome of an attempt.

use super::{fail, secret, stop};
use crate::{
    ActState, Attempt, EventKind, Failure, Outcome, POSTPONE_DEFAULT, POSTPONEMENTS_MAX, Rejection, Report,
    SPAN_MAX, Timestamp,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Accepts the outcome of the current attempt; late and repeated reports change nothing.
pub(super) fn report(draft: &mut Draft<'_>, report: &Report) -> Result<(), Rejection> {
    let attempt = &report.attempt;
    check_current(draft, attempt)?;
    start(draft, attempt);
    let key = attempt.key;
    match &report.outcome {
        Outcome::Succeeded(result) if let Some(failure) = secret::failure(&draft.task, result.as_ref()) => {
            fail::fail(draft, key, failure);
        }
        Outcome::Succeeded(result) => {
            let result = result.clone().filter(|result| !result.is_empty());
            draft.emit(EventKind::ActSucceeded { key, attempt: attempt.number, result });
        }
        Outcome::Failed(_) | Outcome::RetryLater { .. } if stop::is_stopped(draft, key) => {
            stop::end(draft, key)
        }
        Outcome::Failed(failure) => fail::fail(draft, key, failure.clone()),
        Outcome::RetryLater { delay, message } => {
            let postponements = draft.task.act(key).map_or(0, |act| act.postponements());
            if fail::is_last_chance(draft, key) {
                fail::fail_for_good(draft, key, Failure::new(message, 1, false));
            } else if postponements >= POSTPONEMENTS_MAX {
                let message = format!("asked to be tried later {POSTPONEMENTS_MAX} times: {message}");
                fail::fail_for_good(draft, key, Failure::new(&message, 1, false));
            } else {
                let until = draft.context.now + delay.unwrap_or(POSTPONE_DEFAULT).min(SPAN_MAX);
                let message = message.clone();
                draft.emit(EventKind::ActPostponed { key, attempt: attempt.number, until, message });
            }
        }
    }
    Ok(())
}

/// Accepts only the current attempt of an execution.
pub(super) fn check_current(draft: &Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    let act = draft.task.act(attempt.key).ok_or(Rejection::UnknownAct)?;
    if attempt.number == 0 || attempt.number > act.attempt {
        return Err(Rejection::UnknownAct);
    }
    if attempt.number < act.attempt {
        return Err(Rejection::Stale);
    }
    match act.state {
        ActState::Ready | ActState::Parked => Ok(()),
        ActState::Succeeded if is_planted(Bug::ResultTwice) => Ok(()),
        // Withdrawn before any worker was known to have it.
        ActState::Idle | ActState::Awaiting(_) | ActState::Fanned => Err(Rejection::Stale),
        ActState::Delayed { .. } | ActState::Succeeded | ActState::Failed | ActState::Skipped => {
            Err(Rejection::Duplicate)
        }
    }
}

/// Records when the attempt was claimed, if known.
pub(super) fn start(draft: &mut Draft<'_>, attempt: &Attempt) {
    if let Some(at) = attempt.started_at {
        let at = not_before_ready(draft, attempt, at);
        draft.emit_at(at, EventKind::ActStarted { key: attempt.key, attempt: attempt.number });
    }
}

/// The time of a claim, but not before the attempt became ready: the clock of the claiming server may have been behind.
pub(super) fn not_before_ready(draft: &Draft<'_>, attempt: &Attempt, at: Timestamp) -> Timestamp {
    at.max(draft.task.act(attempt.key).and_then(|act| act.ready_at).unwrap_or(at))
}
