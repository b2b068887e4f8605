//! The task turns around: nothing forward starts any more.

use crate::{
    ActState, Actor, Cause, Direction, EventKind,
    draft::Draft,
    planted::{Bug, is_planted},
};

use super::fail;

/// Turns the task around. What workers have is waited for (the engine cancels it); what waits in queues or
/// for a time is withdrawn. [`super::proceed`] begins the undoing once nothing is in flight.
pub(super) fn turn_back(draft: &mut Draft<'_>, cause: Cause) {
    let by = match &cause {
        Cause::Cancel { by } | Cause::GivenUp { by, .. } => by.clone(),
        Cause::Failure { .. } => None,
    };
    clear_alarms(draft, by.as_ref());
    draft.emit(EventKind::TaskRollingBack { cause });
    let withdrawn: Vec<EventKind> = draft
        .task
        .acts()
        .filter(|(key, act)| key.direction == Direction::Forward && act.is_open() && !draft.is_held(*key))
        .map(|(key, act)| {
            // A delayed act has an attempt behind it, and so has any but the first.
            let ran_before = act.attempt > 1 || matches!(act.state, ActState::Delayed { .. });
            let may_have_run = ran_before || draft.context.handed_out.contains(&key);
            let touched = draft.task.state.steps[key.step].touched
                && may_have_run
                && !is_planted(Bug::WithdrawnStepNotUndone);
            EventKind::ActWithdrawn { key, attempt: act.attempt, touched }
        })
        .collect();
    for event in withdrawn {
        draft.emit(event);
    }
}

/// Steps that waited for a decision do not wait for it any more.
fn clear_alarms(draft: &mut Draft<'_>, by: Option<&Actor>) {
    let waiting: Vec<_> = draft.task.acts().filter_map(|(key, _)| fail::trouble(draft, key)).collect();
    for stuck in waiting {
        draft.emit(EventKind::AlarmCleared { kind: stuck.kind, step: stuck.step, by: by.cloned() });
    }
}
