//! After every command: whatever can begin begins, and a task with nothing left to do ends.

use super::fail;
use crate::{
    ActKey, ActState, Cause, Ending, EventKind, Phase, Stuck, StuckKind,
    draft::Draft,
    planted::{Bug, is_planted},
};

/// Lets the task go as far as it can by itself.
pub(super) fn proceed(draft: &mut Draft<'_>) {
    match draft.task.state.phase {
        Phase::Scheduled | Phase::Ended(_) => return,
        Phase::Forward => forward(draft),
        Phase::Backward => backward(draft),
    }
    settle_stuck(draft);
}

/// Steps whose predecessors are done become ready; when all are done the task has succeeded.
fn forward(draft: &mut Draft<'_>) {
    for index in 0..draft.task.state.steps.len() {
        let task = &draft.task;
        let steps = &task.state.steps;
        let idle = steps[index].forward.state == ActState::Idle;
        if idle && task.flow.steps[index].after.iter().all(|after| steps[*after].forward.is_satisfied()) {
            fail::ready(draft, ActKey::forward(index));
        }
    }
    if draft.task.state.steps.iter().all(|step| step.forward.is_satisfied()) {
        end(draft, Ending::Succeeded);
    }
}

/// Once nothing forward is in flight, touched steps whose touched successors are undone become ready to be
/// undone; when all are undone the task has ended.
fn backward(draft: &mut Draft<'_>) {
    let in_flight = draft.task.state.steps.iter().any(|step| step.forward.is_open());
    if in_flight && !is_planted(Bug::UndoneInFlight) {
        return;
    }
    while let Some(key) = next_undo(draft) {
        if draft.task.action(key).is_some() {
            fail::ready(draft, key);
        } else {
            draft.emit(EventKind::ActSkipped { key });
        }
    }
    let steps = &draft.task.state.steps;
    if steps.iter().all(|step| !step.touched || step.undo.is_satisfied()) {
        let undid = steps.iter().any(|step| step.undo.attempt > 0);
        let ending = match draft.task.state.cause {
            Some(Cause::Cancel { .. }) => Ending::Cancelled,
            _ if undid => Ending::RolledBack,
            _ => Ending::Failed,
        };
        end(draft, ending);
    }
}

/// The last touched step in definition order whose undo can begin.
fn next_undo(draft: &Draft<'_>) -> Option<ActKey> {
    let (flow, steps) = (&draft.task.flow, &draft.task.state.steps);
    (0..steps.len())
        .rev()
        .filter(|index| steps[*index].touched && steps[*index].undo.state == ActState::Idle)
        .find(|index| {
            is_planted(Bug::RollbackForward)
                || flow.successors(*index).all(|next| !steps[next].touched || steps[next].undo.is_satisfied())
        })
        .map(ActKey::rollback)
}

/// The end is the last event of a task.
fn end(draft: &mut Draft<'_>, ending: Ending) {
    if draft.task.state.stuck.is_some() {
        draft.emit(EventKind::TaskUnstuck);
    }
    draft.emit(EventKind::TaskEnded(ending));
}

/// A task is stuck when something waits for a person and nothing else can run.
fn settle_stuck(draft: &mut Draft<'_>) {
    let stuck = draft.task.state.stuck.as_ref();
    if draft.task.is_ended() || stuck.is_some_and(|stuck| stuck.kind == StuckKind::EngineFault) {
        return;
    }
    let open = draft.task.acts().any(|(_, act)| act.is_open());
    let trouble: Option<Stuck> =
        if open { None } else { draft.task.acts().find_map(|(key, _)| fail::trouble(draft, key)) };
    match trouble {
        // Also when one of several troubles was settled: the task then says what it still waits for.
        Some(trouble) if stuck != Some(&trouble) => draft.emit(EventKind::TaskStuck(trouble)),
        None if stuck.is_some() => draft.emit(EventKind::TaskUnstuck),
        _ => {}
    }
}
