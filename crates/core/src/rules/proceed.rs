//! After every command: steps that can start are started, and a task with nothing left to do ends.

use super::{attempts, exclusive, fail, members, turn_back};
use crate::{
    ActKey, ActState, CHILD_RESULT_BYTES_MAX, Cause, Direction, Ending, EventKind, Failure, Millis,
    OnPartial, Phase, Role, Stuck, StuckKind, Task,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Advances the task as far as possible.
pub(super) fn proceed(draft: &mut Draft<'_>) {
    match draft.task.state.phase {
        Phase::Scheduled | Phase::Ended(_) => return,
        Phase::Forward => forward(draft),
        Phase::Backward => {}
    }
    // A failure during the forward direction may have started the rollback.
    if draft.task.state.phase == Phase::Backward {
        backward(draft);
    }
    settle_stuck(draft);
}

/// Starts steps whose predecessors are completed; when all are completed, the task has succeeded.
fn forward(draft: &mut Draft<'_>) {
    if !exclusive::may_go_on(draft) {
        return;
    }
    // A started step may end at once and let its successors start; each step starts once.
    loop {
        proceed_with_members(draft, Direction::Forward);
        match next_step(&draft.task) {
            Some(index) => turn(draft, index),
            None => break,
        }
    }
    if draft.task.state.phase != Phase::Forward || !are_all_done(&draft.task) {
        return;
    }
    // Results that are too large cannot be passed to the parent, and no other task would roll them back.
    let bytes = draft.task.input.parent.map_or(0, |_| draft.task.returned().as_str().len());
    if bytes > CHILD_RESULT_BYTES_MAX {
        turn_back::turn_back(draft, Cause::ResultTooLarge { bytes: bytes as u64 });
    } else {
        end(draft, Ending::Succeeded);
    }
}

/// Whether all steps are completed, as far as their successors require.
fn are_all_done(task: &Task) -> bool {
    task.flow.plain_steps().all(|step| task.lets_pass(step))
}

/// The first step in definition order that can start.
fn next_step(task: &Task) -> Option<usize> {
    if task.state.phase != Phase::Forward {
        return None;
    }
    task.flow.plain_steps().find(|index| {
        if task.state.steps[*index].forward.state != ActState::Idle {
            return false;
        }
        let after = &task.flow.steps[*index].after;
        let one = is_planted(Bug::JoinEarly) && after.iter().any(|before| task.lets_pass(*before));
        one || after.iter().all(|before| task.lets_pass(*before))
    })
}

/// Handles a step that can start: it starts, waits, is skipped, or fails on its parameters.
fn turn(draft: &mut Draft<'_>, index: usize) {
    let (key, definition) = (ActKey::forward(index), &draft.task.flow.steps[index]);
    if let (OnPartial::AtLeast(least), None) = (definition.on_partial, &definition.each) {
        let done =
            definition.after.iter().filter(|step| draft.task.state.steps[**step].forward.is_satisfied());
        let (done, all) = (done.count(), definition.after.len());
        if done < least as usize && !is_planted(Bug::LeastIgnored) {
            let message = format!(
                "{done} of the {all} steps before it succeeded or were skipped, and at least {least} must"
            );
            return fail::fail_for_good(draft, key, Failure::new(&message, 1, false));
        }
    }
    if let Some(when) = definition.when.clone() {
        match draft.task.is_wanted(key, &when, &draft.evaluation) {
            Ok(true) => {}
            Ok(false) => return draft.emit(EventKind::ActSkipped { key }),
            Err(message) => {
                return fail::fail_on_data(draft, key, &message);
            }
        }
    }
    let definition = &draft.task.flow.steps[index];
    match definition.delay {
        Some(delay) if delay > Millis(0) => {
            let until = draft.context.now + delay;
            draft.emit(EventKind::ActDelayed { key, until });
        }
        _ if definition.each.is_some() => members::fan(draft, key),
        _ => attempts::enter(draft, key),
    }
}

/// Advances the items of fanned-out steps in this direction.
fn proceed_with_members(draft: &mut Draft<'_>, direction: Direction) {
    for step in 0..draft.task.state.steps.len() {
        if draft.task.state.steps[step].act(direction).state == ActState::Fanned {
            members::proceed(draft, ActKey { step, member: 0, direction });
        }
    }
}

/// Once no forward execution is in flight, starts the rollback of steps whose successors are rolled back; when all
/// steps that need it are rolled back, the task has ended.
fn backward(draft: &mut Draft<'_>) {
    let in_flight = draft.task.has_open(Direction::Forward);
    if in_flight && !is_planted(Bug::UndoneInFlight) {
        return;
    }
    loop {
        proceed_with_members(draft, Direction::Rollback);
        let Some(key) = next_undo(draft) else { break };
        let members = draft.task.state.steps[key.step].members.as_ref().map(|members| members.total());
        match (draft.task.action(key), members) {
            (None, _) if draft.task.runs_flow(key.step).is_none() => {
                draft.emit(EventKind::ActSkipped { key })
            }
            (_, Some(members)) => draft.emit(EventKind::ActFanned { key, members }),
            // Other rollbacks count under the concurrency key of their forward execution.
            (Some(_), None) if draft.task.flow.steps[key.step].role == Role::OnError => {
                attempts::enter(draft, key);
            }
            (_, None) => attempts::begin(draft, key),
        }
    }
    let steps = &draft.task.state.steps;
    if steps.iter().all(|step| !step.touched || step.undo.is_satisfied()) {
        let undid = draft.task.flow.plain_steps().any(|step| steps[step].undo.attempt > 0);
        let ending = match draft.task.state.cause {
            Some(Cause::Cancel { .. }) => Ending::Cancelled,
            // A completed child task was rolled back entirely; an unfinished one was cancelled with its parent.
            Some(Cause::Parent) if are_all_done(&draft.task) => Ending::RolledBack,
            Some(Cause::Parent) => Ending::Cancelled,
            Some(Cause::Rollout { .. }) => Ending::RolledBack,
            _ if undid => Ending::RolledBack,
            _ => Ending::Failed,
        };
        end(draft, ending);
    }
}

/// The last step in definition order that needs a rollback and can start it.
fn next_undo(draft: &Draft<'_>) -> Option<ActKey> {
    let steps = &draft.task.state.steps;
    (0..steps.len())
        .rev()
        .filter(|index| steps[*index].touched && steps[*index].undo.state == ActState::Idle)
        .find(|index| is_planted(Bug::RollbackForward) || draft.task.is_undone_after(*index))
        .map(ActKey::rollback)
}

/// Ends the task. The end is the last event of a task.
fn end(draft: &mut Draft<'_>, ending: Ending) {
    if draft.task.state.stuck.is_some() {
        draft.emit(EventKind::TaskUnstuck);
    }
    exclusive::clear(draft, None);
    draft.emit(EventKind::TaskEnded(ending));
}

/// A task is stuck when something waits for an operator and nothing else can run.
fn settle_stuck(draft: &mut Draft<'_>) {
    let stuck = draft.task.state.stuck.as_ref();
    if draft.task.is_ended() || stuck.is_some_and(|stuck| stuck.kind == StuckKind::EngineFault) {
        return;
    }
    let trouble: Option<Stuck> = if draft.task.has_open_act() {
        None
    } else {
        draft.task.step_acts().find_map(|(key, _)| crate::task::trouble(&draft.task, key))
    };
    match trouble {
        // Also when one of several troubles was resolved: the task then shows the next one.
        Some(trouble) if stuck != Some(&trouble) => draft.emit(EventKind::TaskStuck(trouble)),
        None if stuck.is_some() => draft.emit(EventKind::TaskUnstuck),
        _ => {}
    }
}
