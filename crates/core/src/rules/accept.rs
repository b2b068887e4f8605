//! Taking a task in.

use crate::{ActKey, Actor, EventKind, Json, Rejection, ResolutionKind, draft::Draft};

/// The task begins its history; a task without a start time begins its first steps. Steps that another task has
/// done are done.
pub(super) fn accept(
    draft: &mut Draft<'_>,
    done: &[(usize, Option<Json>)],
    by: Option<&Actor>,
) -> Result<(), Rejection> {
    if draft.task.state.events > 0 {
        return Err(Rejection::Duplicate);
    }
    draft.emit(EventKind::TaskAccepted);
    for (step, result) in done {
        let (key, resolution) = (ActKey::forward(*step), ResolutionKind::Done);
        draft.emit(EventKind::ActResolved { key, resolution, result: result.clone(), by: by.cloned() });
    }
    Ok(())
}
