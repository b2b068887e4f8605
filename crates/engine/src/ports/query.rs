//! What is asked of a store, and what it answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{ActKey, Alarm, Flow, Millis, Name, Task, TaskId, TaskStatus, Timestamp, task_status};

use super::QueuePause;

/// A flow in one version.
#[derive(Debug, Clone)]
pub struct StoredFlow {
    /// The flow, with its version in it.
    pub flow: Arc<Flow>,
    /// When it was applied.
    pub created_at: Timestamp,
}

/// An alarm and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAlarm {
    /// The alarm.
    pub alarm: Alarm,
    /// Grows with every change.
    pub version: u64,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskQuery {
    /// Only with one of these statuses; empty = any.
    pub statuses: Vec<TaskStatus>,
    /// Only of this flow.
    pub flow: Option<Name>,
    /// Only with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only accepted at or after this time.
    pub since: Option<Timestamp>,
    /// Only accepted before this time.
    pub until: Option<Timestamp>,
    /// Only older than this task.
    pub before: Option<TaskId>,
    /// At most this many.
    pub limit: usize,
    /// The caller needs ids and states only: tasks that have not ended may come with empty parameters.
    pub without_params: bool,
}

impl TaskQuery {
    /// Whether a task meets the filters; `held` are the acts workers have.
    #[must_use]
    pub fn matches(&self, task: &Task, held: &BTreeSet<ActKey>) -> bool {
        let created_at = task.input.created_at;
        (self.statuses.is_empty() || self.statuses.contains(&task_status(task, held)))
            && self.flow.as_ref().is_none_or(|flow| *flow == task.flow.name)
            && self.labels.iter().all(|(name, value)| task.input.labels.get(name) == Some(value))
            && self.since.is_none_or(|since| created_at >= since)
            && self.until.is_none_or(|until| created_at < until)
    }
}

/// Most tasks looked at for one page: a filter that few tasks meet gives short pages with a cursor rather than
/// a request that reads everything.
pub const SCAN_MAX: usize = 10_000;

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page<T, C> {
    /// What was found; it may be less than asked for while there is more.
    pub items: Vec<T>,
    /// Where the next page begins; nothing at the end.
    pub next: Option<C>,
}

/// A line an attempt wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The task.
    pub task: TaskId,
    /// The act.
    pub key: ActKey,
    /// Number of the attempt.
    pub attempt: u32,
    /// When the server got it.
    pub at: Timestamp,
    /// The line.
    pub line: Box<str>,
}

/// A queue as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// The module.
    pub name: Name,
    /// Attempts that wait.
    pub ready: u64,
    /// Attempts that sessions have.
    pub running: u64,
    /// Since when the first in line waits.
    pub oldest_ready_at: Option<Timestamp>,
    /// Since when and by whom it is paused.
    pub paused: Option<QueuePause>,
}

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Ended tasks with all that belongs to them, where their flows do not say for how long.
    pub tasks: Millis,
    /// Log lines.
    pub logs: Millis,
    /// Tasks of which something is in the outbox stay until it was announced. Without it nobody announces anything, and
    /// the outbox keeps nothing.
    pub keeps_unannounced: bool,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: u64 = 24 * 3600;
        Self {
            tasks: Millis::from_secs(30 * DAY),
            logs: Millis::from_secs(7 * DAY),
            keeps_unannounced: false,
        }
    }
}
