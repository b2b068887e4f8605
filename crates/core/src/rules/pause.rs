//! A person holds a task between attempts.

use crate::{ActKey, ActState, Actor, EventKind, Pause, Rejection, draft::Draft};

/// Takes ready attempts out of their queues; those that workers have may end.
pub(super) fn pause(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    if draft.task.state.pause == Pause::Held {
        return Ok(());
    }
    draft.emit(EventKind::TaskPaused { by: by.cloned() });
    park(draft);
    Ok(())
}

/// Parks every ready attempt that no worker has.
pub(super) fn park(draft: &mut Draft<'_>) {
    let ready: Vec<(ActKey, u32)> = draft
        .task
        .acts()
        .filter(|(key, act)| act.state == ActState::Ready && !draft.is_held(*key))
        .map(|(key, act)| (key, act.attempt))
        .collect();
    for (key, attempt) in ready {
        draft.emit(EventKind::ActParked { key, attempt });
    }
}
