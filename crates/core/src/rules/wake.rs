//! A timer of the task is due: its start, a retry, or a deadline.

use super::{attempts, fail, members, report, turn_back};
use crate::{
    ActKey, ActState, Attempt, Awaited, Cause, DEADLINE_CODE, Direction, EventKind, Failure, OnFailure,
    Phase, Rejection, Wakeup,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// The code of an attempt that no worker took in time.
pub const START_CODE: i32 = 126;

/// Processes a due timer; an early or late wake-up finds nothing due.
pub(super) fn wake(draft: &mut Draft<'_>, wakeup: Wakeup) -> Result<(), Rejection> {
    match wakeup {
        Wakeup::Start => start(draft),
        Wakeup::Act(key) => act(draft, key),
        Wakeup::Deadline => deadline(draft),
    }
}

/// Handles the deadline of the task: it starts rolling back.
fn deadline(draft: &mut Draft<'_>) -> Result<(), Rejection> {
    let due = draft.task.deadline_at().is_some_and(|at| at <= draft.context.now);
    if !due || !matches!(draft.task.state.phase, Phase::Scheduled | Phase::Forward) {
        return Err(Rejection::NothingDue);
    }
    turn_back::turn_back(draft, Cause::Deadline);
    Ok(())
}

fn start(draft: &mut Draft<'_>) -> Result<(), Rejection> {
    let due = draft.task.input.at.is_some_and(|at| at <= draft.context.now);
    if draft.task.state.phase != Phase::Scheduled || !due {
        return Err(Rejection::NothingDue);
    }
    draft.emit(EventKind::TaskStarted);
    Ok(())
}

fn act(draft: &mut Draft<'_>, key: ActKey) -> Result<(), Rejection> {
    let now = draft.context.now;
    let act = draft.task.act(key).ok_or(Rejection::UnknownAct)?;
    let (state, attempt) = (act.state, act.attempt);
    let deadline_passed = !act.overdue && act.deadline_at.is_some_and(|deadline_at| deadline_at <= now);
    let start_passed = act.start_by().is_some_and(|start_by| start_by <= now);
    match state {
        ActState::Ready if deadline_passed && draft.is_held(key) => {
            draft.emit(EventKind::ActOverdue { key, attempt });
            let forward = key.direction == Direction::Forward && draft.task.state.phase == Phase::Forward;
            // The consequences of an item, or of a step that others tolerate, follow when it has ended. An attempt of a
            // module that reports over a broker cannot be stopped, and its answer may be lost: its end decides as well.
            let waits = key.is_member() || draft.is_afar(key) || draft.task.flow.tolerates(key.step);
            let decides = forward && !waits;
            if decides && draft.task.flow.on_failure == OnFailure::Rollback {
                turn_back::turn_back(draft, Cause::Failure { step: key.step });
            }
        }
        // The child task was given its deadline, and starts rolling back by itself.
        ActState::Awaiting(Awaited::Child) => return Err(Rejection::NothingDue),
        ActState::Ready | ActState::Delayed { .. } | ActState::Awaiting(_) if deadline_passed => {
            let last =
                act.failure.as_ref().map(|failure| format!("; the last attempt failed: {}", failure.message));
            let what = match draft.task.action(key) {
                // For such a step `timeout` sets how long it waits.
                Some(crate::Action { doer: crate::Doer::Signal { name }, deadline: Some(span), .. }) => {
                    format!("the signal {name} did not come within {span}")
                }
                _ => fail::DEADLINE_PASSED.to_owned(),
            };
            let message = format!("{what}{}", last.unwrap_or_default());
            fail::fail_for_good(draft, key, Failure::new(&message, DEADLINE_CODE, false));
        }
        ActState::Ready if start_passed && draft.is_held(key) && !draft.is_offered(key) => {
            let at = draft.claimed_at(key).unwrap_or(now).max(act.ready_at.unwrap_or_default());
            draft.emit_at(at, EventKind::ActTaken { key, attempt });
            // The deadline starts there, so it may have passed by now as well.
            return match self::act(draft, key) {
                Err(Rejection::NothingDue) => Ok(()),
                done => done,
            };
        }
        ActState::Ready if start_passed => {
            let span = draft.task.action(key).and_then(|action| action.start_within).unwrap_or_default();
            let message = format!("no worker took it within {span}");
            fail::fail(draft, key, Failure::new(&message, START_CODE, true));
        }
        ActState::Delayed { until } if until <= now || is_planted(Bug::RetriedEarly) => match attempt {
            // The step waited for its `delay`.
            _ if draft.task.flow.steps[key.step].each.is_some() && !key.is_member() => {
                members::fan(draft, key);
            }
            0 => attempts::enter(draft, key),
            _ => attempts::begin(draft, key),
        },
        _ => return Err(Rejection::NothingDue),
    }
    Ok(())
}

/// Records that a worker claimed the attempt a while ago: the deadline of all attempts starts there, also after a
/// restart.
pub(super) fn taken(draft: &mut Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    report::check_current(draft, attempt)?;
    let key = attempt.key;
    let runs = draft.task.act(key).is_some_and(|act| act.deadline_at.is_some());
    let deadline = draft.task.action(key).and_then(|action| action.deadline);
    let (Some(at), Some(_), false) = (attempt.started_at, deadline, runs) else {
        return Err(Rejection::NothingDue);
    };
    draft.emit_at(
        report::not_before_ready(draft, attempt, at),
        EventKind::ActTaken { key, attempt: attempt.number },
    );
    Ok(())
}
