//! What this server has seen happen, for metrics and traces: accepted tasks, and ends of tasks and attempts, once they are
//! on disk.

use std::sync::{Arc, PoisonError, RwLockReadGuard};

use windlass_core::{ActKey, Ending, Event, EventKind, Failure, Millis, Name, Task, Timestamp};

use crate::Engine;

/// Hears what happened on this server. It is called between commits, so it must be quick. `task` is the task afterwards.
pub trait Observer: Send + Sync + 'static {
    /// A task was accepted.
    fn task_accepted(&self, task: &Task);

    /// A task ended.
    fn task_ended(&self, task: &Task, end: &TaskEnd);

    /// An attempt that a worker had ended.
    fn attempt_ended(&self, task: &Task, end: &AttemptEnd);
}

/// The end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskEnd {
    /// How it ended.
    pub ending: Ending,
    /// When.
    pub at: Timestamp,
}

impl TaskEnd {
    /// How long the task took, from its submit or, if that was later, from the time for which it was scheduled.
    #[must_use]
    pub fn took(&self, task: &Task) -> Millis {
        let created_at = task.input.created_at;
        self.at - task.input.at.map_or(created_at, |at| at.max(created_at))
    }
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptEnd {
    /// Its execution.
    pub key: ActKey,
    /// Its number.
    pub attempt: u32,
    /// When a worker got it.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub outcome: AttemptOutcome,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It succeeded.
    Succeeded,
    /// It failed, with or without a further retry.
    Failed(Failure),
    /// Its worker asked for a later attempt.
    Postponed,
    /// Its worker was lost.
    Lost,
    /// An operator or the server stopped it.
    Stopped,
}

impl AttemptOutcome {
    /// The word for it, in metrics and traces.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed(_) => "failed",
            Self::Postponed => "postponed",
            Self::Lost => "lost",
            Self::Stopped => "stopped",
        }
    }
}

impl AttemptEnd {
    /// Its queue, which is the module, and its command.
    #[must_use]
    pub fn worker<'t>(&self, task: &'t Task) -> Option<(&'t Name, &'t Name)> {
        task.action(self.key)?.worker()
    }
}

impl Engine {
    /// From now on `observer` hears what happens on this server, as the others do.
    pub fn observed_by(&self, observer: Arc<dyn Observer>) {
        self.observers.write().unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    /// Those that hear what happens on this server.
    pub(crate) fn observers(&self) -> RwLockReadGuard<'_, Vec<Arc<dyn Observer>>> {
        self.observers.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What observers hear of a change.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    is_accepted: bool,
    ended: Option<TaskEnd>,
    attempts: Vec<AttemptEnd>,
}

impl Observed {
    /// Finds it in the events of the change.
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut seen = Self::default();
        // The start of an attempt is recorded with its end.
        let mut started: Vec<(ActKey, Timestamp)> = Vec::new();
        for event in events {
            let (key, attempt, outcome) = match &event.kind {
                EventKind::TaskAccepted => {
                    seen.is_accepted = true;
                    continue;
                }
                EventKind::TaskEnded(ending) => {
                    seen.ended = Some(TaskEnd { ending: *ending, at: event.at });
                    continue;
                }
                EventKind::ActStarted { key, .. } => {
                    started.push((*key, event.at));
                    continue;
                }
                EventKind::ActSucceeded { key, attempt, .. } => (key, attempt, AttemptOutcome::Succeeded),
                EventKind::ActFailed { key, attempt, failure }
                | EventKind::ActRetrying { key, attempt, failure, .. } => {
                    (key, attempt, AttemptOutcome::Failed(failure.clone()))
                }
                EventKind::ActPostponed { key, attempt, .. } => (key, attempt, AttemptOutcome::Postponed),
                EventKind::ActLost { key, attempt } | EventKind::ActReclaimed { key, attempt } => {
                    (key, attempt, AttemptOutcome::Lost)
                }
                EventKind::ActStopped { key, attempt } => (key, attempt, AttemptOutcome::Stopped),
                _ => continue,
            };
            // A lost attempt may fail for good with it: the first event is its end.
            if let Some(place) = started.iter().position(|(of, _)| of == key) {
                let (key, started_at) = started.swap_remove(place);
                let (attempt, ended_at) = (*attempt, event.at);
                seen.attempts.push(AttemptEnd { key, attempt, started_at, ended_at, outcome });
            }
        }
        seen
    }

    /// Passes it on.
    pub(crate) fn show(&self, task: &Task, observer: &dyn Observer) {
        if self.is_accepted {
            observer.task_accepted(task);
        }
        self.attempts.iter().for_each(|end| observer.attempt_ended(task, end));
        if let Some(end) = &self.ended {
            observer.task_ended(task, end);
        }
    }
}
