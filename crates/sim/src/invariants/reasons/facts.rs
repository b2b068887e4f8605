//! The states of tasks, locks, limits, queues and workers over time.

use std::{collections::BTreeMap, rc::Rc};

use windlass_core::{ActKey, Actor, EventKind, Lock, LockName, Name, Task, TaskId, Timestamp};
use windlass_store::{AttemptId, Change, TaskChange, memory::Row};

use super::over::Over;
use crate::{
    config::{Config, Fault},
    judge::Seen,
    rows::Rules,
    truth::Truth,
    world::World,
};

/// The states over time.
pub(super) struct Facts {
    pub(super) tasks: BTreeMap<TaskId, Over<Rc<Task>>>,
    pub(super) locks: BTreeMap<LockName, Over<Option<Lock>>>,
    pub(super) rules: Over<Rules>,
    /// The last pause of a task: its time and its actor.
    pub(super) pauses: BTreeMap<TaskId, Over<Paused>>,
    /// The ends of the last unsuccessful attempts of executions.
    pub(super) ends: BTreeMap<(TaskId, ActKey, u32), AttemptEnd>,
    /// Running commands of workers.
    pub(super) runs: BTreeMap<u64, Run>,
    /// The highest claim of each attempt that was given to a worker, and its time.
    pub(super) given: BTreeMap<(TaskId, ActKey, u32), (u64, u64)>,
    /// The open polls that servers know of, by worker, with their start times.
    pub(super) polls: BTreeMap<usize, u64>,
    pub(super) server_started_at: u64,
    /// When a server last read its disk: at its start, after failed writes, and when it was resumed.
    pub(super) recovered_at: u64,
    /// Whether servers share a store: only then they keep claims when they are killed.
    pub(super) shared: bool,
    /// Whether a disk or a database may fail or be slow.
    pub(super) failing: bool,
}

/// The pause of a task.
pub(super) type Paused = (Timestamp, Option<Actor>);

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Postponed(Box<str>),
    Failed,
}

/// A running command.
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
            Seen::Damaged(Row::Limit(_)) => self.rules.set(now, truth.rules.clone()),
            Seen::Damaged(Row::Lock(name)) => {
                self.locks.entry(name.clone()).or_default().set(now, truth.post.locks.get(name).cloned());
            }
            Seen::ServerStarted => self.server_started_at = now,
            // A resumed server continues with its old state.
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
                | EventKind::ActReclaimed { key, attempt, .. }
                | EventKind::ActStopped { key, attempt } => {
                    self.ends.insert((id, *key, *attempt), AttemptEnd::Failed);
                }
                _ => {}
            }
        }
    }

    /// The task when it had this number of events, if it was so at some time since then.
    pub(super) fn task_with(&self, id: TaskId, events: u64, since: u64) -> Option<&Task> {
        let over = self.tasks.get(&id)?;
        over.since(since).find(|task| task.state.events == events).map(|task| &**task)
    }

    /// All states of a task since then.
    pub(super) fn task_since(&self, id: TaskId, since: u64) -> impl Iterator<Item = &Task> {
        self.tasks.get(&id).into_iter().flat_map(move |over| over.since(since)).map(|task| &**task)
    }

    /// Whether a queue was paused, or not, at some time since then.
    pub(super) fn was_paused(&self, queue: &Name, paused: bool, since: u64) -> bool {
        self.rules.since(since).any(|rules| rules.paused.contains(queue) == paused)
    }
}

fn is_rule(change: &Change) -> bool {
    matches!(change, Change::Limit(_) | Change::Queue(_))
}
