//! A fault of the engine: the task is held in its current state, and an operator must look.

use super::pause;
use crate::{EventKind, Rejection, Stuck, StuckKind, transition::draft::Draft};

/// Holds the task without changing anything else; `resume` continues it.
pub(super) fn hold(draft: &mut Draft<'_>, message: &str) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    if draft.task.state.stuck.as_ref().is_some_and(|stuck| stuck.kind == StuckKind::EngineFault) {
        return Ok(());
    }
    let stuck = Stuck {
        kind: StuckKind::EngineFault,
        step: None,
        message: format!("held because of a fault of the engine: {message}").into(),
    };
    pause::pause(draft, None)?;
    draft.emit(EventKind::TaskStuck(stuck.clone()));
    draft.emit(EventKind::AlarmRaised { stuck });
    Ok(())
}
