//! What happened to tasks and attempts on this server.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use windlass_core::{Millis, Name, Task};
use windlass_engine::{AttemptEnd, HandedOut, Observer, TaskEnd};
use windlass_store::Now;

use crate::http::view;

/// The most flows, and the most queues, with metrics of their own: clients make up their names.
const NAMES_MAX: usize = 200;

/// The label of all others.
const OTHER: &str = "other";

/// The upper bounds of the buckets, in seconds.
const BUCKETS: [f64; 15] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0, 3600.0];

/// Counters and histograms of tasks and attempts. Clones count together.
#[derive(Clone)]
pub(super) struct Work {
    tasks: Family<TaskLabels, Counter>,
    task_duration: Family<FlowLabels, Histogram>,
    attempts: Family<AttemptLabels, Counter>,
    attempt_wait: Family<QueueLabels, Histogram>,
    attempt_run: Family<QueueLabels, Histogram>,
    flows: Names,
    queues: Names,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabels {
    flow: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLabels {
    flow: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    queue: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct QueueLabels {
    pub(super) queue: String,
}

/// The first names that came.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<HashSet<Name>>>);

impl Names {
    /// The label of a name.
    fn label(&self, name: &Name) -> String {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.contains(name) {
            if names.len() >= NAMES_MAX {
                return OTHER.to_owned();
            }
            names.insert(name.clone());
        }
        name.to_string()
    }
}

impl Default for Work {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self {
            tasks: Family::default(),
            task_duration: Family::new_with_constructor(histogram),
            attempts: Family::default(),
            attempt_wait: Family::new_with_constructor(histogram),
            attempt_run: Family::new_with_constructor(histogram),
            flows: Names::default(),
            queues: Names::default(),
        }
    }
}

impl Work {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("tasks_ended", "Tasks that ended, by flow and outcome", self.tasks.clone());
        let help = "Time from the start of a task to its end";
        registry.register_with_unit("task_duration", help, Unit::Seconds, self.task_duration.clone());
        let help = "Attempts of workers that ended, by queue and outcome";
        registry.register("attempts_ended", help, self.attempts.clone());
        let help = "Time for which an attempt was ready before a worker got it";
        registry.register_with_unit("attempt_wait", help, Unit::Seconds, self.attempt_wait.clone());
        let help = "Time for which a worker had an attempt";
        registry.register_with_unit("attempt_run", help, Unit::Seconds, self.attempt_run.clone());
    }

    /// A worker gets an attempt.
    pub(super) fn picked_up(&self, HandedOut { id, task, .. }: &HandedOut, now: Now) {
        let ready_at = task.act(id.key).and_then(|act| act.ready_at);
        let worker = task.action(id.key).and_then(|action| action.worker());
        if let (Some(ready_at), Some((queue, _))) = (ready_at, worker) {
            let labels = QueueLabels { queue: self.queues.label(queue) };
            self.attempt_wait.get_or_create(&labels).observe(seconds(now.wall - ready_at));
        }
    }
}

impl Observer for Work {
    fn task_accepted(&self, _: &Task) {}

    fn task_ended(&self, task: &Task, end: &TaskEnd) {
        let outcome = view::ending(end.ending);
        let flow = self.flows.label(&task.flow.name);
        let took = seconds(end.took(task));
        self.task_duration.get_or_create(&FlowLabels { flow: flow.clone() }).observe(took);
        self.tasks.get_or_create(&TaskLabels { flow, outcome }).inc();
    }

    fn attempt_ended(&self, task: &Task, end: &AttemptEnd) {
        let Some((queue, _)) = end.worker(task) else { return };
        let (queue, outcome) = (self.queues.label(queue), end.outcome.as_str());
        let took = seconds(end.ended_at - end.started_at);
        self.attempt_run.get_or_create(&QueueLabels { queue: queue.clone() }).observe(took);
        self.attempts.get_or_create(&AttemptLabels { queue, outcome }).inc();
    }
}

fn seconds(time: Millis) -> f64 {
    std::time::Duration::from_millis(time.0).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_share_a_label() {
        let names = Names::default();
        let name = |n: usize| Name::new(&format!("f{n}")).unwrap();
        for n in 0..NAMES_MAX {
            assert_eq!(names.label(&name(n)), format!("f{n}"));
        }
        assert_eq!(names.label(&name(NAMES_MAX)), OTHER);
        assert_eq!(names.label(&name(7)), "f7");
    }
}
