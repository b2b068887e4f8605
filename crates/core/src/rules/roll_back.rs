//! A rollout that was aborted rolls back the tasks that succeeded.

use super::{child, turn_back};
use crate::{ActKey, Cause, Direction, Ending, Name, Phase, Rejection, Task, transition::draft::Draft};

/// Starts rolling back a task that succeeded. A child task rolls back only with its parent, and a task without any rollback
/// stays as it is.
pub(super) fn roll_back(draft: &mut Draft<'_>, rollout: &Name) -> Result<(), Rejection> {
    match draft.task.state.phase {
        Phase::Ended(Ending::Succeeded) if draft.task.input.parent.is_none() => {}
        Phase::Ended(_) => return Err(Rejection::Ended),
        // It has begun already.
        Phase::Backward => return Ok(()),
        Phase::Scheduled | Phase::Forward => return Err(Rejection::NotEnded),
    }
    if !has_rollback(&draft.task) {
        return Err(Rejection::NothingToRollBack);
    }
    turn_back::turn_back(draft, Cause::Rollout { rollout: rollout.clone() });
    Ok(())
}

/// Whether a step that may have had effects has a rollback.
fn has_rollback(task: &Task) -> bool {
    let steps = task.flow.steps.iter().zip(&task.state.steps).enumerate();
    steps.filter(|(_, (_, state))| state.touched).any(|(index, (step, _))| {
        let key = ActKey { direction: Direction::Rollback, ..ActKey::forward(index) };
        step.rollback.is_some() || child::to_undo(task, key).is_some()
    })
}
