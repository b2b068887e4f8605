//! What this server has seen happen, for metrics: ends of tasks and of attempts, once they are on disk.

use std::sync::Arc;

use windlass_core::{Ending, Event, EventKind, Millis, Name, Task};

use crate::Engine;

/// Hears what happened on this server. It is called between commits, so it must be quick.
pub trait Observer: Send + Sync + 'static {
    /// A task ended.
    fn task_ended(&self, end: &TaskEnd);

    /// An attempt that a worker had ended.
    fn attempt_ended(&self, end: &AttemptEnd);
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEnd {
    /// Its flow.
    pub flow: Name,
    /// How it ended.
    pub ending: Ending,
    /// How long it took, from its submit or, if that was later, from the time for which it was scheduled.
    pub took: Millis,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptEnd {
    /// Its queue, which is the module.
    pub queue: Name,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// How long a worker had it.
    pub took: Millis,
}

impl Engine {
    /// From now on `observer` hears what happens on this server. There is one at most: later ones are ignored.
    pub fn observed_by(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }
}

/// The ends among the events of a change.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    tasks: Vec<TaskEnd>,
    attempts: Vec<AttemptEnd>,
}

impl Ends {
    /// Finds them. `task` is the task afterwards.
    pub(crate) fn of(task: &Task, events: &[Event]) -> Self {
        let mut ends = Self::default();
        for (place, event) in events.iter().enumerate() {
            match &event.kind {
                EventKind::TaskEnded(ending) => {
                    let created_at = task.input.created_at;
                    let since = task.input.at.map_or(created_at, |at| at.max(created_at));
                    let (flow, ending, took) = (task.flow.name.clone(), *ending, event.at - since);
                    ends.tasks.push(TaskEnd { flow, ending, took });
                }
                EventKind::ActSucceeded { key, .. }
                | EventKind::ActFailed { key, .. }
                | EventKind::ActRetrying { key, .. } => {
                    let succeeded = matches!(event.kind, EventKind::ActSucceeded { .. });
                    // The start of an attempt is recorded with its end.
                    let started = events[..place].iter().rev().find_map(|event| match event.kind {
                        EventKind::ActStarted { key: of, .. } if of == *key => Some(event.at),
                        _ => None,
                    });
                    let worker = task.action(*key).and_then(|action| action.worker());
                    ends.attempts.extend(started.zip(worker).map(|(started, (queue, _))| AttemptEnd {
                        queue: queue.clone(),
                        succeeded,
                        took: event.at - started,
                    }));
                }
                _ => {}
            }
        }
        ends
    }

    /// Passes them on.
    pub(crate) fn show(&self, observer: &dyn Observer) {
        self.tasks.iter().for_each(|end| observer.task_ended(end));
        self.attempts.iter().for_each(|end| observer.attempt_ended(end));
    }
}
