//! An operator cancels a task.

use super::{resume, turn_back};
use crate::{Actor, Cause, Phase, Rejection, transition::draft::Draft};

/// Starts rolling back, also out of a pause, which ends with it. During a rollback there is nothing to cancel.
pub(super) fn cancel(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    match draft.task.state.phase {
        Phase::Ended(_) => Err(Rejection::Ended),
        Phase::Backward => Ok(()),
        Phase::Scheduled | Phase::Forward => {
            resume::settle_fault(draft, by);
            turn_back::turn_back(draft, Cause::Cancel { by: by.cloned() });
            Ok(())
        }
    }
}
