//! The parts of a batch that is being committed: which items wait for which change.

use std::sync::Arc;

use windlass_core::{Effect, Event, TaskId};

use windlass_store::{AttemptId, Loaded, LogLine, SessionId, TaskChange};

use crate::{
    deciding::{batch::Place, inbox::Reply},
    queries::observer::Observed,
};

/// An item that waits for the outcome of a change: it is part of the change, or was decided on its result.
pub(super) struct Pending {
    pub(super) place: Place,
    /// The reply to the item once the change is on disk; `None` = derived from the outcome of the change.
    pub(super) reply: Option<Reply>,
}

/// The items that wait for the outcome of a change, and the data needed after its commit.
pub(super) struct Part {
    pub(super) pending: Vec<Pending>,
    /// For the change of a task: the data needed once it is on disk.
    pub(super) task: Option<TaskPart>,
    /// The change sets a timer.
    pub(super) has_timer: bool,
    /// The change sends a message.
    pub(super) sends: bool,
    /// Log lines of attempts, for watchers.
    pub(super) logs: Option<Logged>,
}

/// Log lines of the attempts of one task.
pub(super) struct Logged {
    pub(super) task: TaskId,
    /// The lines, if there was a watcher when they arrived.
    pub(super) lines: Option<Arc<[LogLine]>>,
}

impl Logged {
    pub(super) fn of(lines: &[LogLine], watched: bool) -> Option<Self> {
        let task = lines.first()?.task;
        Some(Self { task, lines: watched.then(|| lines.into()) })
    }
}

/// Data from a task's change that is needed once it is on disk.
pub(super) struct TaskPart {
    /// The task afterwards.
    pub(super) loaded: Loaded,
    /// The events, if there was a watcher when they were decided.
    pub(super) events: Option<Vec<Event>>,
    /// What observers hear of, if this server has some.
    pub(super) seen: Option<Observed>,
    /// Attempts that workers must stop.
    pub(super) stops: Vec<(SessionId, AttemptId)>,
}

/// Whether a change waits for a time.
pub(super) fn has_timer(change: &TaskChange) -> bool {
    let timer = |effect: &Effect| matches!(effect, Effect::Wait(waiting) if waiting.due_at.is_some());
    change.waits.iter().any(timer)
}
