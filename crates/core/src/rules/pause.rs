//! An operator pauses a task between attempts.

use super::{exclusive, report, suspend};
use crate::{
    ActKey, ActState, Actor, Attempt, EventKind, Free, Pause, Rejection, transition::draft::Draft, when_free,
};

/// Withdraws ready attempts from their queues; claimed ones may end.
pub(super) fn pause(draft: &mut Draft<'_>, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    match draft.task.state.pause {
        Pause::None => {}
        Pause::Suspended => return suspend::take_over(draft, by),
        Pause::Held | Pause::Stopping => return Ok(()),
    }
    draft.emit(EventKind::TaskPaused { by: by.cloned() });
    exclusive::raise(draft);
    park(draft);
    Ok(())
}

/// Parks an attempt that was claimed when its task was paused or lost its exclusive queue, and that has no claim any
/// more. That is not a failure: the same attempt is ready again later.
pub(super) fn park_one(draft: &mut Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    report::check_current(draft, attempt)?;
    let key = attempt.key;
    if !is_to_park(draft, key) {
        return Err(Rejection::NothingDue);
    }
    draft.emit(EventKind::ActParked { key, attempt: attempt.number });
    exclusive::join_again(draft);
    Ok(())
}

/// Parks every ready attempt without a claim.
pub(super) fn park(draft: &mut Draft<'_>) {
    let acts = draft.task.open_acts().filter(|(key, _)| is_to_park(draft, *key));
    let ready: Vec<(ActKey, u32)> = acts.map(|(key, act)| (key, act.attempt)).collect();
    for (key, attempt) in ready {
        draft.emit(EventKind::ActParked { key, attempt });
    }
}

/// Whether the attempt is ready and unclaimed; one that must stop is not parked.
fn is_to_park(draft: &Draft<'_>, key: ActKey) -> bool {
    let ready = draft.task.act(key).is_some_and(|act| act.state == ActState::Ready);
    ready && !draft.is_held(key) && when_free(&draft.task, key) == Free::Park
}
