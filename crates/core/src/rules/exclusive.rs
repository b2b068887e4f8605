//! Exclusive queues: a task joins its queue when it starts, starts nothing before it has the queue, and keeps it until
//! it has ended. The messages that join and release the queue follow from the task's state ([`crate::effects`]).

use super::{attempts, pause};
use crate::{
    ActKey, ActState, Actor, Awaited, EventKind, Pause, QueueState, Rejection, Stuck, StuckKind,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Whether the task may start something now. If it is not in its exclusive queue, it joins the queue.
pub(super) fn admit(draft: &mut Draft<'_>) -> bool {
    if draft.task.input.exclusive.is_none() || is_planted(Bug::QueueIgnored) {
        return true;
    }
    match draft.task.state.queue.state {
        QueueState::Granted { .. } => true,
        QueueState::Waiting => false,
        QueueState::Out => {
            draft.emit(EventKind::QueueJoined);
            false
        }
    }
}

/// Whether the forward direction may go on: not before the task has had its exclusive queue, and not while it waits for
/// it. A task that lost the queue joins again only when it has an attempt to start.
pub(super) fn may_go_on(draft: &mut Draft<'_>) -> bool {
    match draft.task.state.queue.turn {
        0 => admit(draft),
        _ => !draft.task.waits_for_queue(),
    }
}

/// Handles the granted queue: the attempts that were parked until then advance.
pub(super) fn granted(draft: &mut Draft<'_>, turn: u32, fence: u64) -> Result<(), Rejection> {
    if !draft.task.waits_for_queue() || draft.task.state.queue.turn != turn {
        return Err(Rejection::NothingDue);
    }
    draft.emit(EventKind::QueueGranted { fence });
    if draft.task.state.pause == Pause::None {
        attempts::go_on(draft);
    } else {
        raise(draft);
    }
    Ok(())
}

/// An operator moves the queue past the task. Refused while something of the task is under way: the next task would
/// run beside it.
pub(super) fn skip(draft: &mut Draft<'_>, reason: &str, by: Option<&Actor>) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    let Some((_, fence)) = draft.task.queue_fence() else { return Err(Rejection::NotInQueue) };
    if draft.task.is_under_way() && !is_planted(Bug::RunningHeadSkipped) {
        return Err(Rejection::UnderWay);
    }
    leave(draft, fence, reason, by);
    Ok(())
}

/// Handles a queue that was taken away at the lock. What a worker has goes on under an outdated fence. A task that was
/// about to get the queue joins again.
pub(super) fn seized(
    draft: &mut Draft<'_>,
    fence: u64,
    reason: &str,
    by: Option<&Actor>,
) -> Result<(), Rejection> {
    match draft.task.state.queue.state {
        QueueState::Granted { fence: held } if held == fence => leave(draft, fence, reason, by),
        QueueState::Waiting => {
            draft.emit(EventKind::QueueLost { fence, reason: reason.into(), by: by.cloned() });
            admit(draft);
        }
        QueueState::Granted { .. } | QueueState::Out => return Err(Rejection::NothingDue),
    }
    Ok(())
}

/// The task leaves the queue, and its executions release their locks: the next task of the queue may need them. It
/// joins again when it has an attempt to start.
fn leave(draft: &mut Draft<'_>, fence: u64, reason: &str, by: Option<&Actor>) {
    clear(draft, by);
    draft.emit(EventKind::QueueLost { fence, reason: reason.into(), by: by.cloned() });
    pause::park(draft);
    let locking = draft.task.open_acts().filter(|(_, act)| act.state == ActState::Awaiting(Awaited::Lock));
    let locking: Vec<(ActKey, u32)> = locking.map(|(key, act)| (key, act.attempt)).collect();
    for (key, attempt) in locking {
        draft.emit(EventKind::ActParked { key, attempt });
    }
    join_again(draft);
}

/// Joins the queue again if attempts wait for it.
pub(super) fn join_again(draft: &mut Draft<'_>) {
    let waits = draft.task.open_acts().any(|(_, act)| act.state == ActState::Parked);
    if waits && draft.task.state.pause == Pause::None {
        admit(draft);
    }
}

/// Raises an alarm if the task keeps its queue although it is paused.
pub(super) fn raise(draft: &mut Draft<'_>) {
    let Some((queue, _)) = draft.task.queue_fence().filter(|_| draft.task.blocks_queue()) else { return };
    let message = format!(
        "the task is paused and keeps the exclusive queue {queue}, so no other task of the queue starts: resume or \
         cancel it, or run `windlass queue skip {queue} --reason TEXT`"
    );
    let stuck = Stuck { kind: StuckKind::QueueBlocked, step: None, message: message.into() };
    draft.emit(EventKind::AlarmRaised { stuck });
}

/// Clears that alarm. Called before the event that ends the reason for it.
pub(super) fn clear(draft: &mut Draft<'_>, by: Option<&Actor>) {
    if draft.task.blocks_queue() {
        let kind = StuckKind::QueueBlocked;
        draft.emit(EventKind::AlarmCleared { kind, step: None, by: by.cloned() });
    }
}
