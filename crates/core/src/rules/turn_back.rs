//! The task turns around: nothing forward starts any more.

use crate::{ActKey, Actor, Cause, Direction, EventKind, apply::Draft};

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
    let open: Vec<ActKey> = draft
        .task
        .acts()
        .filter(|(key, act)| key.direction == Direction::Forward && act.is_open())
        .map(|(key, _)| key)
        .filter(|key| !draft.is_held(*key))
        .collect();
    for key in open {
        let attempt = draft.task.act(key).map_or(0, |act| act.attempt);
        let was_touched = draft.task.state.steps[key.step].touched;
        let may_have_run = attempt > 1 || draft.context.handed_out.contains(&key);
        let touched = was_touched && may_have_run;
        draft.emit(EventKind::ActWithdrawn { key, attempt, touched });
    }
}

/// Steps that waited for a decision do not wait for it any more.
fn clear_alarms(draft: &mut Draft<'_>, by: Option<&Actor>) {
    let waiting: Vec<_> = draft.task.acts().filter_map(|(key, _)| fail::trouble(draft, key)).collect();
    for stuck in waiting {
        draft.emit(EventKind::AlarmCleared { kind: stuck.kind, step: stuck.step, by: by.cloned() });
    }
}
