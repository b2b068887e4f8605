//! Starting the rollback of a task: no forward execution starts any more.

use super::exclusive;
use crate::{
    ActKey, ActState, Actor, Awaited, Cause, Direction, EventKind,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Starts rolling back. Claimed attempts are awaited (the engine cancels them), and so are child tasks; queued and
/// delayed attempts are withdrawn. [`super::proceed`] starts the rollbacks once nothing is in flight.
pub(super) fn turn_back(draft: &mut Draft<'_>, cause: Cause) {
    let by = match &cause {
        Cause::Cancel { by } | Cause::GivenUp { by, .. } => by.clone(),
        Cause::Failure { .. }
        | Cause::Deadline
        | Cause::Parent
        | Cause::ResultTooLarge { .. }
        | Cause::Rollout { .. } => None,
    };
    clear_alarms(draft, by.as_ref());
    // These causes also end a pause.
    if matches!(cause, Cause::Cancel { .. } | Cause::Parent) {
        exclusive::clear(draft, by.as_ref());
    }
    draft.emit(EventKind::TaskRollingBack { cause });
    let withdrawn: Vec<EventKind> = draft
        .task
        .open_acts()
        .filter(|(key, act)| {
            let ends = draft.is_held(*key) || act.state == ActState::Awaiting(Awaited::Child);
            key.direction == Direction::Forward && !ends
        })
        .map(|(key, act)| {
            // Every attempt but the first follows an earlier one, and so does a delayed retry.
            let delayed = matches!(act.state, ActState::Delayed { .. }) && act.attempt > 0;
            // Likewise, an earlier attempt may have run if the execution had to request its locks again after an
            // operator took one from it.
            let asks_again = act.state == ActState::Awaiting(Awaited::Lock) || act.turn() > 1;
            let was_handed_out = draft.context.handed_out.contains(&key);
            let may_have_run = act.attempt > 1 || delayed || asks_again || was_handed_out;
            let touched = is_touched(draft, key) && may_have_run && !is_planted(Bug::WithdrawnStepNotUndone);
            EventKind::ActWithdrawn { key, attempt: act.attempt, touched }
        })
        .collect();
    for event in withdrawn {
        draft.emit(event);
    }
    withdraw_fans(draft);
}

fn is_touched(draft: &Draft<'_>, key: ActKey) -> bool {
    let step = &draft.task.state.steps[key.step];
    let member = step.members.as_ref().and_then(|members| members.get(key.member));
    member.map_or(step.touched, |member| member.touched)
}

/// Stops the start of further items of fanned-out steps.
fn withdraw_fans(draft: &mut Draft<'_>) {
    let fanned: Vec<EventKind> = draft
        .task
        .fans()
        .filter(|(index, _)| draft.task.state.steps[*index].forward.state == ActState::Fanned)
        .map(|(index, members)| EventKind::ActWithdrawn {
            key: ActKey::forward(index),
            attempt: 1,
            touched: members.touched() > 0,
        })
        .collect();
    for event in fanned {
        draft.emit(event);
    }
}

/// Clears the alarms of steps that waited for a decision.
fn clear_alarms(draft: &mut Draft<'_>, by: Option<&Actor>) {
    let waiting: Vec<_> =
        draft.task.step_acts().filter_map(|(key, _)| crate::task::trouble(&draft.task, key)).collect();
    for stuck in waiting {
        draft.emit(EventKind::AlarmCleared { kind: stuck.kind, step: stuck.step, by: by.cloned() });
    }
}
