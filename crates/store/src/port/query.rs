//! What is asked of a store, and what it answers.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    ActKey, Alarm, Flow, Input, Millis, Name, Task, TaskId, TaskStatus, Timestamp, task_status,
};

use super::{Loaded, ParamFilter, QueuePause};

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
    /// Only submitted under one of these idempotency keys, which are named by their scopes. Stores look them up and scan
    /// nothing.
    pub scopes: Option<Vec<[u8; 32]>>,
    /// Only with this value of their flow's unique key.
    pub unique: Option<Box<str>>,
    /// Only with all of these parameters.
    pub params: Vec<ParamFilter>,
    /// Only accepted at or after this time.
    pub since: Option<Timestamp>,
    /// Only accepted before this time.
    pub until: Option<Timestamp>,
    /// Only older than this task.
    pub before: Option<TaskId>,
    /// At most this many.
    pub limit: usize,
    /// The caller does not look at the parameters, which may be 1 MiB for each task: a store may give `{}` in their
    /// place.
    pub brief: bool,
}

impl TaskQuery {
    /// Whether a task meets the filters; `held` are the acts workers have.
    #[must_use]
    pub fn matches(&self, task: &Task, held: &BTreeSet<ActKey>) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&task_status(task, held)))
            && self.flow.as_ref().is_none_or(|flow| *flow == task.flow.name)
            && self.admits(&task.input)
    }

    /// Whether what was submitted meets the filters that are about nothing else.
    #[must_use]
    pub fn admits(&self, input: &Input) -> bool {
        self.labels.iter().all(|(name, value)| input.labels.get(name) == Some(value))
            && self.since.is_none_or(|since| input.created_at >= since)
            && self.until.is_none_or(|until| input.created_at < until)
            && self.unique.as_ref().is_none_or(|unique| input.unique.as_ref() == Some(unique))
            && self.params.iter().all(|param| param.matches(&input.params))
    }

    /// Whether a store must read the parameters of tasks: the filters or the caller look at them.
    #[must_use]
    pub fn reads_params(&self) -> bool {
        !self.brief || !self.params.is_empty()
    }

    /// The page of those tasks that meet the filters, where they were looked up by their idempotency keys.
    #[must_use]
    pub fn page_of(&self, found: Vec<Option<Loaded>>) -> Page<Loaded, TaskId> {
        let is_older = |id: TaskId| self.before.is_none_or(|before| id < before);
        let wanted = |found: &Loaded| is_older(found.task.id) && self.matches(&found.task, &found.held());
        let mut items: Vec<Loaded> = found.into_iter().flatten().filter(wanted).collect();
        items.sort_by_key(|loaded| Reverse(loaded.task.id));
        items.dedup_by_key(|loaded| loaded.task.id);
        let is_cut = items.len() > self.limit;
        items.truncate(self.limit);
        let next = if is_cut { items.last().map(|loaded| loaded.task.id) } else { None };
        Page { items, next }
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
    /// Log lines, and entries of journals that are not kept for less.
    pub logs: Millis,
    /// The audit log.
    pub audit: Millis,
    /// Tasks of which something is in the outbox stay until it was announced. Without it nobody announces anything, and
    /// the outbox keeps nothing.
    pub keeps_unannounced: bool,
    /// Messages of devices that came until then go, however new they are: there is no room for more.
    pub messages_until: Option<Timestamp>,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: u64 = 24 * 3600;
        Self {
            tasks: Millis::from_secs(30 * DAY),
            logs: Millis::from_secs(7 * DAY),
            audit: Millis::from_secs(365 * DAY),
            keeps_unannounced: false,
            messages_until: None,
        }
    }
}
