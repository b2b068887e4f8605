//! A person ends a task.

use super::{resume, turn_back};
use crate::{Actor, Cause, Pause, Phase, Rejection, draft::Draft};

/// Turns the task around, also out of a pause. On the way back there is nothing to cancel.
pub(super) fn cancel(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    match draft.task.state.phase {
        Phase::Ended(_) => Err(Rejection::Ended),
        Phase::Backward => Ok(()),
        Phase::Scheduled | Phase::Forward => {
            if draft.task.state.pause == Pause::Held {
                resume::let_go(draft, by);
            }
            turn_back::turn_back(draft, Cause::Cancel { by: by.cloned() });
            Ok(())
        }
    }
}
