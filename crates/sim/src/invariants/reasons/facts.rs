//! What was true of tasks, locks, limits, queues and workers, and when.

use std::{collections::BTreeMap, rc::Rc};

use windlass_core::{ActKey, Actor, EventKind, Lock, LockName, Name, Task, TaskId, Timestamp};
use windlass_store::{AttemptId, Change, TaskChange};

use super::over::Over;
use crate::{
    config::{Config, Fault},
    judge::Seen,
    rows::Rules,
    truth::Truth,
    world::World,
};

/// What was true, and when.
pub(super) struct Facts {
    pub(super) tasks: BTreeMap<TaskId, Over<Rc<Task>>>,
    pub(super) locks: BTreeMap<LockName, Over<Option<Lock>>>,
    pub(super) rules: Over<Rules>,
    /// Who paused a task last, and when.
    pub(super) pauses: BTreeMap<TaskId, Over<Paused>>,
    /// How the last attempts of acts ended that did not succeed.
    pub(super) ends: BTreeMap<(TaskId, ActKey, u32), AttemptEnd>,
    /// Commands that workers run.
    pub(super) runs: BTreeMap<u64, Run>,
    /// The highest claim of each attempt that was given to a worker, and when.
    pub(super) given: BTreeMap<(TaskId, ActKey, u32), (u64, u64)>,
    /// Polls that servers hear, by worker, since when.
    pub(super) polls: BTreeMap<usize, u64>,
    pub(super) server_started_at: u64,
    /// When a server read its disk last, at its start and after writes that failed, or went on after it stood still.
    pub(super) recovered_at: u64,
    /// Servers forget who has what when they are killed.
    pub(super) shared: bool,
    /// A disk or a database may fail or be slow.
    pub(super) failing: bool,
}

/// A task is paused.
pub(super) type Paused = (Timestamp, Option<Actor>);

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Postponed(Box<str>),
    Failed,
}

/// A command that runs.
pub(super) struct Run {
    pub(super) worker: usize,
    pub(super) id: AttemptId,
}

impl Facts {
    pub(super) fn new(config: &Config) -> Self {
        let strange = |fault: &Fault| matches!(fault, Fault::StoreFull | Fault::StoreSlow);
        let failing = config.faults.device_errors > 0 || config.faults.kinds.iter().any(strange);
        let mut rules = Over::default();
        rules.set(0, Rules::default());
        Self {
            tasks: BTreeMap::new(),
            locks: BTreeMap::new(),
            rules,
            pauses: BTreeMap::new(),
            ends: BTreeMap::new(),
            runs: BTreeMap::new(),
            given: BTreeMap::new(),
            polls: BTreeMap::new(),
            server_started_at: 0,
            recovered_at: 0,
            shared: config.shared,
            failing,
        }
    }

    pub(super) fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) {
        let now = world.now();
        match seen {
            Seen::Staged(batch) if batch.changes.iter().any(is_rule) => {
                self.rules.set(now, truth.rules.clone());
            }
            Seen::Recovered => {
                self.rules.set(now, truth.rules.clone());
                self.recovered_at = now;
            }
            Seen::Written(change) => self.see_written(change, truth, now),
            Seen::ServerStarted => self.server_started_at = now,
            // One that stood still goes on where it was.
            Seen::ServerResumed => self.recovered_at = now,
            Seen::InTouch { worker, called: true } => {
                self.polls.insert(*worker, now);
            }
            Seen::InTouch { worker, called: false } => {
                self.polls.remove(worker);
            }
            Seen::ServerKilled => self.polls.clear(),
            Seen::WorkerKilled { worker } => {
                self.polls.remove(worker);
                self.runs.retain(|_, run| run.worker != *worker);
            }
            Seen::Given { id, .. } => {
                let given = self.given.entry((id.task, id.key, id.attempt)).or_default();
                if given.0 < id.claim {
                    *given = (id.claim, now);
                }
            }
            Seen::RunBegan { worker, run, id } => {
                self.runs.insert(*run, Run { worker: *worker, id: *id });
            }
            Seen::RunEnded { run, .. } => drop(self.runs.remove(run)),
            _ => {}
        }
    }

    fn see_written(&mut self, change: &Change, truth: &Truth, now: u64) {
        match change {
            Change::Task(change) => {
                if let Some(known) = truth.tasks.get(&change.task.id) {
                    self.tasks.entry(change.task.id).or_default().set(now, known.task.clone());
                }
                self.see_events(change, now);
            }
            Change::Lock(change) => {
                let name = &change.lock.name;
                self.locks.entry(name.clone()).or_default().set(now, truth.post.locks.get(name).cloned());
            }
            change if is_rule(change) => self.rules.set(now, truth.rules.clone()),
            _ => {}
        }
    }

    fn see_events(&mut self, change: &TaskChange, now: u64) {
        let id = change.task.id;
        for event in &change.events {
            match &event.kind {
                EventKind::TaskPaused { by } => {
                    self.pauses.entry(id).or_default().set(now, (event.at, by.clone()));
                }
                EventKind::ActPostponed { key, attempt, message, .. } => {
                    self.ends.insert((id, *key, *attempt), AttemptEnd::Postponed(message.clone()));
                }
                EventKind::ActRetrying { key, attempt, .. }
                | EventKind::ActLost { key, attempt, .. }
                | EventKind::ActReclaimed { key, attempt, .. } => {
                    self.ends.insert((id, *key, *attempt), AttemptEnd::Failed);
                }
                _ => {}
            }
        }
    }

    /// The task when it had so many events, if it was so at some moment since then.
    pub(super) fn task_with(&self, id: TaskId, events: u64, since: u64) -> Option<&Task> {
        let over = self.tasks.get(&id)?;
        over.since(since).find(|task| task.state.events == events).map(|task| &**task)
    }

    /// All that a task was since then.
    pub(super) fn task_since(&self, id: TaskId, since: u64) -> impl Iterator<Item = &Task> {
        self.tasks.get(&id).into_iter().flat_map(move |over| over.since(since)).map(|task| &**task)
    }

    /// Whether a queue was paused, or was not, at some moment since then.
    pub(super) fn was_paused(&self, queue: &Name, paused: bool, since: u64) -> bool {
        self.rules.since(since).any(|rules| rules.paused.contains(queue) == paused)
    }
}

fn is_rule(change: &Change) -> bool {
    matches!(change, Change::Limit(_) | Change::Queue(_))
}
