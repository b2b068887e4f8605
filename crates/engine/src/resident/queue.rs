//! Ready attempts, by module and command, smallest rank first.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, Name, Ready, TaskId, Timestamp};

use crate::ports::{QueuePause, QueueState, Wish};

/// The ready attempts of all modules.
#[derive(Debug, Default)]
pub(super) struct Queues {
    modules: BTreeMap<Name, Queue>,
}

/// The ready attempts of one module.
#[derive(Debug, Default)]
struct Queue {
    /// One line per command, so that a worker that lacks some never walks over theirs.
    commands: BTreeMap<Name, BTreeSet<Place>>,
    ready: u64,
    running: u64,
    paused: Option<QueuePause>,
    /// Something waited here at some time.
    used: bool,
}

/// A place in a line: rank, then age, then order of definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) rank: i64,
    pub(super) task: TaskId,
    pub(super) key: ActKey,
    pub(super) ready_at: Timestamp,
}

impl Place {
    pub(super) fn new(task: TaskId, key: ActKey, ready: &Ready) -> Self {
        Self { rank: ready.rank, task, key, ready_at: ready.ready_at }
    }
}

impl Queues {
    fn queue(&mut self, module: &Name) -> &mut Queue {
        if !self.modules.contains_key(module) {
            self.modules.insert(module.clone(), Queue::default());
        }
        self.modules.entry(module.clone()).or_default()
    }

    pub(super) fn insert(&mut self, task: TaskId, key: ActKey, ready: &Ready) {
        let queue = self.queue(&ready.module);
        let place = Place::new(task, key, ready);
        let line = match queue.commands.get_mut(&ready.command) {
            Some(line) => line,
            None => queue.commands.entry(ready.command.clone()).or_default(),
        };
        if line.insert(place) {
            queue.ready += 1;
        }
        queue.used = true;
    }

    pub(super) fn remove(&mut self, task: TaskId, key: ActKey, ready: &Ready) {
        let Some(queue) = self.modules.get_mut(&ready.module) else { return };
        let Some(line) = queue.commands.get_mut(&ready.command) else { return };
        if line.remove(&Place::new(task, key, ready)) {
            queue.ready -= 1;
        }
        if line.is_empty() {
            queue.commands.remove(&ready.command);
        }
    }

    /// Takes the first in line for `wish`.
    pub(super) fn pop(&mut self, wish: &Wish) -> Option<Place> {
        let queue = self.modules.get_mut(&wish.module).filter(|queue| queue.paused.is_none())?;
        let first =
            |(name, line): (&Name, &BTreeSet<Place>)| line.first().map(|place| (*place, name.clone()));
        let (place, command) = match &wish.commands {
            None => queue.commands.iter().filter_map(first).min()?,
            Some(commands) => {
                commands.iter().filter_map(|name| queue.commands.get_key_value(name).and_then(first)).min()?
            }
        };
        if let Some(line) = queue.commands.get_mut(&command) {
            line.remove(&place);
            if line.is_empty() {
                queue.commands.remove(&command);
            }
        }
        queue.ready -= 1;
        Some(place)
    }

    pub(super) fn count_running(&mut self, module: &Name, by: i64) {
        let queue = self.queue(module);
        queue.running = queue.running.saturating_add_signed(by);
    }

    pub(super) fn set_paused(&mut self, module: &Name, paused: Option<QueuePause>) {
        self.queue(module).paused = paused;
    }

    /// How many attempts stand before this one, of its module.
    pub(super) fn place(&self, task: TaskId, key: ActKey, ready: &Ready) -> Option<u64> {
        let queue = self.modules.get(&ready.module)?;
        let place = Place::new(task, key, ready);
        if !queue.commands.get(&ready.command)?.contains(&place) {
            return None;
        }
        let before: usize = queue.commands.values().map(|line| line.range(..place).count()).sum();
        Some(before as u64)
    }

    pub(super) fn states(&self) -> Vec<QueueState> {
        self.modules
            .iter()
            .filter(|(_, queue)| queue.used || queue.running > 0 || queue.paused.is_some())
            .map(|(name, queue)| QueueState {
                name: name.clone(),
                ready: queue.ready,
                running: queue.running,
                oldest_ready_at: queue
                    .commands
                    .values()
                    .filter_map(|line| line.first())
                    .min()
                    .map(|place| place.ready_at),
                paused: queue.paused.clone(),
            })
            .collect()
    }
}
