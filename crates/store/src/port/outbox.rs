//! The outbox: what happened to tasks and is to be announced, kept until it was.

use windlass_core::{Event, TaskId};

/// What happened to a task by one change and was not announced yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unannounced {
    /// The task.
    pub task: TaskId,
    /// The number of its event before these: the first of them has the number `after + 1`.
    pub after: u64,
    /// What happened. Results are kept with their acts, and need not be with the events that brought them.
    pub events: Vec<Event>,
}

impl Unannounced {
    /// Names it, once it was announced.
    #[must_use]
    pub fn announced(&self) -> Announced {
        Announced { task: self.task, after: self.after }
    }
}

/// Names an [`Unannounced`] that was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Announced {
    /// The task.
    pub task: TaskId,
    /// The number of its event before those that were announced.
    pub after: u64,
}
