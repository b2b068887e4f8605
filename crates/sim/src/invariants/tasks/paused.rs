//! No attempt of a paused task becomes ready or is handed out. An attempt that a worker must stop ends when the worker has
//! reported that, or is lost.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Event, EventKind, Task, TaskId};
use windlass_store::Change;

use crate::invariants::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::{Known, Truth},
    world::World,
};

/// An answer may be under construction for this long when the pause is written: stores may be slow.
const IN_THE_MAKING_MS: u64 = 10_000;

#[derive(Default)]
pub(crate) struct PausedTasks {
    since: BTreeMap<TaskId, u64>,
}

impl Invariant for PausedTasks {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Task(change)) => {
                if let Some(known) = truth.tasks.get(&change.task.id) {
                    begins_nothing(known)?;
                    awaits_ends(known)?;
                }
                let paused =
                    truth.tasks.get(&change.task.id).is_some_and(|known| known.task.state.pause.is_paused());
                if paused {
                    self.since.entry(change.task.id).or_insert(world.now());
                } else {
                    self.since.remove(&change.task.id);
                }
                Ok(())
            }
            Seen::ServerResumed => {
                self.since.values_mut().for_each(|since| *since = world.now());
                Ok(())
            }
            Seen::Given { id, .. } => match self.since.get(&id.task) {
                // An attempt that was claimed before the pause is given when its parameters have been read, and a full disk
                // delays that (world 1796006121703834).
                Some(since)
                    if world.now() > world.servers.disturbed_at(world).max(*since) + IN_THE_MAKING_MS =>
                {
                    let message = format!("task {} is paused, and {:?} is handed out", id.task, id.key);
                    Err(broken("paused tasks", id.task, message))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

fn begins_nothing(known: &Known) -> Result<(), Violation> {
    let mut task = Task::clone(&known.before);
    for event in &known.events {
        if let (EventKind::ActReady { key, .. }, true) = (&event.kind, task.state.pause.is_paused()) {
            let message = format!("task {} is paused, and {key:?} becomes ready", task.id);
            return Err(broken("paused tasks", task.id, message));
        }
        windlass_core::evolve(&mut task, event);
    }
    Ok(())
}

/// The command that stops what runs does not end it. The start of an attempt is recorded with its report or its loss.
fn awaits_ends(known: &Known) -> Result<(), Violation> {
    if known.before.state.pause.stops() {
        // It was to stop already: its worker may have released it since, without having started it.
        return Ok(());
    }
    let is_stop = |event: &Event| {
        matches!(event.kind, EventKind::TaskStopping { .. } | EventKind::TaskSuspended { .. })
    };
    let Some(stop) = known.events.iter().position(is_stop) else { return Ok(()) };
    let mut started = BTreeSet::new();
    for event in &known.events[stop..] {
        match event.kind {
            EventKind::ActStarted { key, attempt } => drop(started.insert((key, attempt))),
            EventKind::ActStopped { key, attempt } if !started.contains(&(key, attempt)) => {
                let id = known.before.id;
                let message =
                    format!("task {id}: {key:?} attempt {attempt} counts as stopped before it has ended");
                return Err(broken("paused tasks", id, message));
            }
            _ => {}
        }
    }
    Ok(())
}
