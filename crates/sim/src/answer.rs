//! A server's explanation why a task is in its state.

use windlass_core::TaskId;
use windlass_engine::{Explanation, Reason, Why};
use windlass_store::{Loaded, Now};

/// A server's explanation why a task is in its state.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The task as the server saw it.
    pub(crate) loaded: Loaded,
    pub(crate) explanation: Explanation,
    /// When the server was asked. It read the task, and everything related, between then and now.
    pub(crate) asked_at: u64,
    /// The time of the server's clock when it was asked.
    pub(crate) now: Now,
}

/// All reasons, as runs count them.
pub(crate) const KINDS: [&str; 22] = [
    "why: ended",
    "why: stuck",
    "why: task_paused",
    "why: scheduled",
    "why: ending",
    "why: running",
    "why: retry",
    "why: postponed",
    "why: deadline",
    "why: delayed",
    "why: signal",
    "why: child",
    "why: lock",
    "why: exclusive",
    "why: members",
    "why: queue_paused",
    "why: no_worker",
    "why: limit",
    "why: queued",
    "why: offered",
    "why: grace",
    "why: moving",
];

/// All removable blockers, as runs count them.
pub(crate) const TAKEN_AWAY: [&str; 12] = [
    "taken away: a pause",
    "taken away: the pause of a queue",
    "taken away: what an operator was to settle",
    "taken away: a signal that was missing",
    "taken away: a limit",
    "taken away: who had a lock",
    "taken away: that there was no worker",
    "taken away: a time that was to come",
    "taken away: an attempt with a worker",
    "taken away: a place in a queue",
    "taken away: something on its way",
    "taken away: what the holder of a queue waits for",
];

/// The name under which the removal of a blocker is counted.
pub(crate) fn taken_away(why: &Why) -> &'static str {
    match why {
        Why::Paused { .. } => TAKEN_AWAY[0],
        Why::QueuePaused { .. } => TAKEN_AWAY[1],
        Why::Stuck { .. } => TAKEN_AWAY[2],
        Why::Signal { .. } => TAKEN_AWAY[3],
        Why::Limited { .. } => TAKEN_AWAY[4],
        Why::Lock { holder: Some(_), .. } => TAKEN_AWAY[5],
        Why::Exclusive { holder: Some(_), .. } => TAKEN_AWAY[11],
        Why::NoWorker { .. } => TAKEN_AWAY[6],
        Why::Scheduled { .. }
        | Why::Retry { .. }
        | Why::Postponed { .. }
        | Why::DeadlineFirst { .. }
        | Why::Delayed { .. } => TAKEN_AWAY[7],
        Why::Running(_) | Why::Ending(_) => TAKEN_AWAY[8],
        Why::Queued { .. } => TAKEN_AWAY[9],
        _ => TAKEN_AWAY[10],
    }
}

/// The name under which a reason is counted.
pub(crate) fn kind(why: &Why) -> &'static str {
    let same = |kind: &&&str| kind.strip_prefix("why: ") == Some(why.as_str());
    KINDS.iter().find(same).copied().unwrap_or("why: unknown")
}

impl Answer {
    /// The task at the end of the chain of first reasons, and its reason: a step may wait for another task,
    /// and a step with items for its first item.
    pub(crate) fn deepest(&self) -> (TaskId, Reason) {
        let (mut task, mut reason) = (self.loaded.task.id, self.explanation.reasons.first());
        loop {
            match reason.map(|reason| &reason.why) {
                Some(Why::Members { first: Some(first), .. }) => reason = Some(first),
                Some(Why::Child { child: Some(child), .. }) if !matches!(child.reason.why, Why::Ended(_)) => {
                    (task, reason) = (child.task.id, Some(&child.reason));
                }
                _ => break,
            }
        }
        (
            task,
            reason.cloned().unwrap_or(Reason {
                key: None,
                why: Why::Moving,
                deadline_at: None,
                device: None,
            }),
        )
    }
}
