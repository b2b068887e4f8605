//! Child tasks: a step that runs a flow starts a child task and waits for its end. During a rollback, a completed child
//! task rolls back, and the step waits for that.

use super::{fail, resume, secret, turn_back};
use crate::{
    ActKey, ActState, Awaited, CHILD_PARAMS_BYTES_MAX, Cause, ChildEnd, DEPTH_MAX, Direction, Ending,
    EventKind, Json, Phase, Rejection, Task, TaskId,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Starts the attempt of a step that runs a flow: starts a child task, or rolls back the one it started.
pub(super) fn begin(draft: &mut Draft<'_>, key: ActKey, attempt: u32) {
    match key.direction {
        Direction::Forward => start(draft, key, attempt),
        Direction::Rollback => match to_undo(&draft.task, key) {
            Some(child) => wait(draft, key, attempt, child),
            None => draft.emit(EventKind::ActSkipped { key }),
        },
    }
}

fn start(draft: &mut Draft<'_>, key: ActKey, attempt: u32) {
    if draft.task.depth() + 1 >= DEPTH_MAX {
        let message = format!(
            "child tasks are nested too deeply: the limit is {DEPTH_MAX}. A flow runs itself, or the chain of flows is \
             too long"
        );
        return fail::fail_on_data(draft, key, &message);
    }
    let bytes = draft.task.params_for(key).as_str().len();
    if bytes > CHILD_PARAMS_BYTES_MAX {
        let message = format!(
            "the parameters for the child task have {bytes} bytes; the limit is {CHILD_PARAMS_BYTES_MAX}: pass less, \
             or a reference"
        );
        return fail::fail_on_data(draft, key, &message);
    }
    let child = TaskId::of_child(draft.task.id, key, attempt, draft.context.now);
    wait(draft, key, attempt, child);
}

fn wait(draft: &mut Draft<'_>, key: ActKey, attempt: u32, child: TaskId) {
    let (awaited, child, locks) = (Awaited::Child, Some(child), Vec::new());
    draft.emit(EventKind::ActAwaiting { key, attempt, awaited, child, locks });
}

/// The child task that this rollback concerns. A child task that did not succeed, or whose result was dropped, has rolled
/// back already, and no child task can roll back a step that was executed by hand.
pub(super) fn to_undo(task: &Task, key: ActKey) -> Option<TaskId> {
    task.runs_flow(key.step)?;
    let forward = task.act(ActKey { direction: Direction::Forward, ..key })?;
    let is_to_undo = forward.state == ActState::Succeeded;
    forward.child().filter(|_| is_to_undo && !is_planted(Bug::ChildNotUndone))
}

/// Handles the end of a child task: the step is completed, has failed, or is rolled back. If its result cannot be used, the
/// child task is rolled back first.
pub(super) fn ended(
    draft: &mut Draft<'_>,
    key: ActKey,
    child: TaskId,
    end: &ChildEnd,
) -> Result<(), Rejection> {
    let waits = |direction: &Direction| {
        let act = draft.task.act(ActKey { direction: *direction, ..key });
        act.is_some_and(|act| act.state == ActState::Awaiting(Awaited::Child) && act.child() == Some(child))
    };
    let direction = [Direction::Forward, Direction::Rollback].into_iter().find(waits);
    let key = ActKey { direction: direction.ok_or(Rejection::NothingDue)?, ..key };
    let attempt = draft.task.act(key).map_or(0, |act| act.attempt);
    match (key.direction, end) {
        (Direction::Forward, ChildEnd::Succeeded(result)) => {
            let result = result.as_deref().map(Json::from_stored);
            match secret::failure(&draft.task, result.as_ref()) {
                // The child task has had its effects, and another attempt would start another one.
                Some(failure) => draft.emit(EventKind::ActResultDropped { key, attempt, failure }),
                None => draft.emit(EventKind::ActSucceeded { key, attempt, result }),
            }
        }
        (Direction::Forward, ChildEnd::Undone(failure)) => fail::fail(draft, key, failure.clone()),
        (Direction::Rollback, ChildEnd::Undone(_)) => {
            draft.emit(EventKind::ActSucceeded { key, attempt, result: None });
        }
        (_, ChildEnd::Gone) => {
            let message = format!(
                "task {child}, which ran the step, was deleted and cannot roll back: roll the step back by hand, then \
                 resolve it as done"
            );
            fail::fail_on_data(draft, key, &message);
        }
        // It reported that before its rollback was requested.
        (Direction::Rollback, ChildEnd::Succeeded(_)) => return Err(Rejection::NothingDue),
    }
    Ok(())
}

/// Handles the rollback of the parent: this task starts rolling back too, also out of a pause. An ended task has
/// already reported its end.
pub(super) fn cancel(draft: &mut Draft<'_>) -> Result<(), Rejection> {
    match draft.task.state.phase {
        Phase::Scheduled | Phase::Forward => {
            resume::settle_fault(draft, None);
            turn_back::turn_back(draft, Cause::Parent);
            Ok(())
        }
        Phase::Backward | Phase::Ended(_) => Err(Rejection::NothingDue),
    }
}

/// Rolls a completed child task back with its parent: the only way in which a completed task changes.
pub(super) fn undo(draft: &mut Draft<'_>) -> Result<(), Rejection> {
    match draft.task.state.phase {
        Phase::Ended(Ending::Succeeded) if draft.task.input.parent.is_some() => {
            turn_back::turn_back(draft, Cause::Parent);
            Ok(())
        }
        _ => cancel(draft),
    }
}
