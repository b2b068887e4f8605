//! An operator resumes a paused task.

use super::{attempts, exclusive, stop};
use crate::{Actor, EventKind, Pause, Rejection, StuckKind, transition::draft::Draft};

/// Returns parked attempts to their queues, at their previous places. Also resumes a task that the engine held because
/// of a fault.
pub(super) fn resume(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    if draft.task.state.pause == Pause::None {
        return Ok(());
    }
    if stop::is_under_way(draft) {
        return Err(Rejection::Stopping);
    }
    exclusive::clear(draft, by);
    draft.emit(EventKind::TaskResumed { by: by.cloned() });
    settle_fault(draft, by);
    attempts::go_on(draft);
    Ok(())
}

/// An operator has acknowledged the fault of the engine for which the task was held.
pub(super) fn settle_fault(draft: &mut Draft<'_>, by: Option<&Actor>) {
    if draft.task.state.stuck.as_ref().is_some_and(|stuck| stuck.kind == StuckKind::EngineFault) {
        draft.emit(EventKind::TaskUnstuck);
        let kind = StuckKind::EngineFault;
        draft.emit(EventKind::AlarmCleared { kind, step: None, by: by.cloned() });
    }
}
