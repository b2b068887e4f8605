//! The server may not run a task for a time: something else than this store decides who may act.

use super::{pause, resume, stop};
use crate::{
    Actor, EventKind, Pause, Rejection,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Pauses the task and stops what workers run of it. If an operator has paused it, what runs is stopped, and the pause
/// stays the operator's.
pub(super) fn suspend(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.state.pause == Pause::None {
        pause::pause(draft, by)?;
        draft.emit(EventKind::TaskSuspended { by: by.cloned() });
        return Ok(());
    }
    stop::stop_running(draft, by)
}

/// Resumes the task, unless it runs or an operator has paused it.
pub(super) fn continue_task(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    if draft.task.state.pause != Pause::Suspended && !is_planted(Bug::PauseOfOthersEnded) {
        return Ok(());
    }
    resume::resume(draft, by)
}

/// The pause is an operator's, or the engine's because of a fault, from now on. What must stop must still stop.
pub(super) fn take_over(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    draft.emit(EventKind::TaskPaused { by: by.cloned() });
    stop::stop_running(draft, by)
}
