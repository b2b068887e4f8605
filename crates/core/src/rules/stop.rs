//! An operator pauses a task, and stops what workers run of it.

use super::{attempts, fail, pause};
use crate::{
    ActKey, ActState, Actor, EventKind, Pause, Rejection,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Pauses the task. Workers must stop the attempts that they have; [`end`] follows when one has ended, or is
/// lost.
pub(super) fn stop(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    pause::pause(draft, by)?;
    stop_running(draft, by)
}

/// Workers must stop the attempts that they have of a paused task.
pub(super) fn stop_running(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    if draft.task.state.pause == Pause::Held && stoppable(draft).next().is_some() {
        draft.emit(EventKind::TaskStopping { by: by.cloned() });
        if is_planted(Bug::StoppedNotAwaited) {
            let keys: Vec<ActKey> = stoppable(draft).collect();
            keys.into_iter().for_each(|key| end(draft, key));
        }
    }
    Ok(())
}

/// Whether workers still have attempts that must stop: the task cannot go on before these have ended.
pub(super) fn is_under_way(draft: &Draft<'_>) -> bool {
    draft.task.state.pause.stops() && stoppable(draft).next().is_some()
}

/// The attempts that workers can stop. A module that reports over a broker only does not hear of it.
fn stoppable<'d>(draft: &'d Draft<'_>) -> impl Iterator<Item = ActKey> + 'd {
    let ready = draft.task.open_acts().filter(|(_, act)| act.state == ActState::Ready);
    ready.map(|(key, _)| key).filter(|key| !draft.is_afar(*key))
}

/// Whether the attempt ends as stopped if it does not succeed: its failure may follow from the stop. An attempt that is
/// the last one in any case ends as it would without.
pub(super) fn is_stopped(draft: &Draft<'_>, key: ActKey) -> bool {
    draft.task.state.pause.stops() && !draft.is_afar(key) && !fail::is_last_chance(draft, key)
}

/// A stopped attempt has ended, or its worker is gone: neither a failure nor a death is counted. The next attempt is
/// parked until the task is resumed.
pub(super) fn end(draft: &mut Draft<'_>, key: ActKey) {
    let Some(attempt) = draft.task.act(key).map(|act| act.attempt) else { return };
    draft.emit(EventKind::ActStopped { key, attempt });
    attempts::begin(draft, key);
}
