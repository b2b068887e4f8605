//! The parts of a batch that is committed: who waits for what.

use std::sync::Arc;

use windlass_core::{Effect, Event, TaskId};

use windlass_store::{AttemptId, Loaded, LogLine, SessionId, TaskChange};

use crate::deciding::{batch::Place, inbox::Reply};

/// An item that waits for the outcome of a change: it is part of it, or was decided on what it makes.
pub(super) struct Pending {
    pub(super) place: Place,
    /// What the item is answered once the change is on disk; nothing = what the change came to.
    pub(super) reply: Option<Reply>,
}

/// Who waits for the outcome of a change, and what it was about.
pub(super) struct Part {
    pub(super) pending: Vec<Pending>,
    /// Of a task's change: what is needed once it is on disk.
    pub(super) task: Option<TaskPart>,
    /// It waits for a time, or has sent a message.
    pub(super) has_timer: bool,
    /// What attempts wrote, for those who watch.
    pub(super) logs: Option<Logged>,
}

/// Lines that attempts of a task wrote.
pub(super) struct Logged {
    pub(super) task: TaskId,
    /// The lines, if anybody watched when they came.
    pub(super) lines: Option<Arc<[LogLine]>>,
}

impl Logged {
    pub(super) fn of(lines: &[LogLine], watched: bool) -> Option<Self> {
        let task = lines.first()?.task;
        Some(Self { task, lines: watched.then(|| lines.into()) })
    }
}

/// What of a task's change is needed once it is on disk.
pub(super) struct TaskPart {
    /// The task afterwards.
    pub(super) loaded: Loaded,
    /// What happened, if anybody watched when it was decided.
    pub(super) events: Option<Vec<Event>>,
    /// Attempts that workers are to stop.
    pub(super) stops: Vec<(SessionId, AttemptId)>,
}

/// Whether a change waits for a time, or sends a message.
pub(super) fn has_timer(change: &TaskChange) -> bool {
    let timer = |effect: &Effect| matches!(effect, Effect::Wait(waiting) if waiting.due_at.is_some());
    change.waits.iter().any(timer) || !change.messages.is_empty()
}
