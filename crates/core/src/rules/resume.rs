//! A person lets a held task go on.

use super::attempts;
use crate::{ActKey, ActState, Actor, EventKind, Pause, Rejection, StuckKind, transition::draft::Draft};

/// Parked attempts go back to their queues, at the place they had. It also lets a task go on that the engine
/// held because of a fault.
pub(super) fn resume(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    if draft.task.state.pause == Pause::None {
        return Ok(());
    }
    draft.emit(EventKind::TaskResumed { by: by.cloned() });
    settle_fault(draft, by);
    let parked: Vec<(ActKey, u32)> = draft
        .task
        .open_acts()
        .filter(|(_, act)| act.state == ActState::Parked)
        .map(|(key, act)| (key, act.attempt))
        .collect();
    for (key, attempt) in parked {
        attempts::go(draft, key, attempt);
    }
    Ok(())
}

/// A person has seen the fault of the engine for which the task was held.
pub(super) fn settle_fault(draft: &mut Draft<'_>, by: Option<&Actor>) {
    if draft.task.state.stuck.as_ref().is_some_and(|stuck| stuck.kind == StuckKind::EngineFault) {
        draft.emit(EventKind::TaskUnstuck);
        let kind = StuckKind::EngineFault;
        draft.emit(EventKind::AlarmCleared { kind, step: None, by: by.cloned() });
    }
}
