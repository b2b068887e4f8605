//! A person lets a held task go on.

use crate::{ActKey, ActState, Actor, EventKind, Pause, Rejection, StuckKind, draft::Draft};

/// Parked attempts go back to their queues, at the place they had. It also lets a task go on that the engine
/// held because of a fault.
pub(super) fn resume(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    if draft.task.state.pause == Pause::None {
        return Ok(());
    }
    let_go(draft, by);
    let parked: Vec<(ActKey, u32)> = draft
        .task
        .acts()
        .filter(|(_, act)| act.state == ActState::Parked)
        .map(|(key, act)| (key, act.attempt))
        .collect();
    for (key, attempt) in parked {
        draft.emit(EventKind::ActReady { key, attempt });
    }
    Ok(())
}

/// Ends a pause, and a hold because of a fault of the engine.
pub(super) fn let_go(draft: &mut Draft<'_>, by: Option<&Actor>) {
    draft.emit(EventKind::TaskResumed { by: by.cloned() });
    if draft.task.state.stuck.as_ref().is_some_and(|stuck| stuck.kind == StuckKind::EngineFault) {
        draft.emit(EventKind::TaskUnstuck);
        let kind = StuckKind::EngineFault;
        draft.emit(EventKind::AlarmCleared { kind, step: None, by: by.cloned() });
    }
}
