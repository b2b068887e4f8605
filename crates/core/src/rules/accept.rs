//! Taking a task in.

use crate::{EventKind, Rejection, draft::Draft};

/// The task begins its history; a task without a start time begins its first steps.
pub(super) fn accept(draft: &mut Draft<'_>) -> Result<(), Rejection> {
    if draft.task.state.events > 0 {
        return Err(Rejection::Duplicate);
    }
    draft.emit(EventKind::TaskAccepted);
    Ok(())
}
