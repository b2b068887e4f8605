//! After every command: whatever can begin begins, and a task with nothing left to do ends.

use super::{attempts, fail, members, turn_back};
use crate::{
    ActKey, ActState, CHILD_RESULT_BYTES_MAX, Cause, Direction, Ending, EventKind, Failure, Millis,
    OnPartial, Phase, Role, Stuck, StuckKind, Task,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Lets the task go as far as it can by itself.
pub(super) fn proceed(draft: &mut Draft<'_>) {
    match draft.task.state.phase {
        Phase::Scheduled | Phase::Ended(_) => return,
        Phase::Forward => forward(draft),
        Phase::Backward => {}
    }
    // What fails on its parameters turns the task around on its way forward.
    if draft.task.state.phase == Phase::Backward {
        backward(draft);
    }
    settle_stuck(draft);
}

/// Steps whose predecessors are done have their turn; when all are done the task has succeeded.
fn forward(draft: &mut Draft<'_>) {
    // What begins may end at once, and others after it may begin then; each begins once.
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
    // What cannot be handed over does not count, and nobody else would undo it.
    let bytes = draft.task.input.parent.map_or(0, |_| draft.task.returned().as_str().len());
    if bytes > CHILD_RESULT_BYTES_MAX {
        turn_back::turn_back(draft, Cause::ResultTooLarge { bytes: bytes as u64 });
    } else {
        end(draft, Ending::Succeeded);
    }
}

/// Whether all steps are done, as far as those after them ask for it.
fn are_all_done(task: &Task) -> bool {
    task.flow.plain_steps().all(|step| task.lets_pass(step))
}

/// The first step in definition order whose turn has come.
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

/// A step has its turn: it begins, waits, is passed over, or fails on what it was given.
fn turn(draft: &mut Draft<'_>, index: usize) {
    let (key, definition) = (ActKey::forward(index), &draft.task.flow.steps[index]);
    if let (OnPartial::AtLeast(least), None) = (definition.on_partial, &definition.each) {
        let done =
            definition.after.iter().filter(|step| draft.task.state.steps[**step].forward.is_satisfied());
        let (done, all) = (done.count(), definition.after.len());
        if done < least as usize && !is_planted(Bug::LeastIgnored) {
            let message = format!(
                "{done} of the {all} steps before it succeeded or were passed over, and at least {least} must"
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

/// Members do or undo their steps.
fn proceed_with_members(draft: &mut Draft<'_>, direction: Direction) {
    for step in 0..draft.task.state.steps.len() {
        if draft.task.state.steps[step].act(direction).state == ActState::Fanned {
            members::proceed(draft, ActKey { step, member: 0, direction });
        }
    }
}

/// Once nothing forward is in flight, touched steps whose touched successors are undone become ready to be
/// undone; when all are undone the task has ended.
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
            // Others count under the key of what they undo.
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
            // Of a child that had succeeded everything is undone; one that was under way was cancelled with its parent.
            Some(Cause::Parent) if are_all_done(&draft.task) => Ending::RolledBack,
            Some(Cause::Parent) => Ending::Cancelled,
            _ if undid => Ending::RolledBack,
            _ => Ending::Failed,
        };
        end(draft, ending);
    }
}

/// The last touched step in definition order whose undo can begin.
fn next_undo(draft: &Draft<'_>) -> Option<ActKey> {
    let steps = &draft.task.state.steps;
    (0..steps.len())
        .rev()
        .filter(|index| steps[*index].touched && steps[*index].undo.state == ActState::Idle)
        .find(|index| is_planted(Bug::RollbackForward) || draft.task.is_undone_after(*index))
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
    let trouble: Option<Stuck> = if draft.task.has_open_act() {
        None
    } else {
        draft.task.step_acts().find_map(|(key, _)| crate::task::trouble(&draft.task, key))
    };
    match trouble {
        // Also when one of several troubles was settled: the task then says what it still waits for.
        Some(trouble) if stuck != Some(&trouble) => draft.emit(EventKind::TaskStuck(trouble)),
        None if stuck.is_some() => draft.emit(EventKind::TaskUnstuck),
        _ => {}
    }
}
