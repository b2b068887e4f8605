//! Nothing of a paused task becomes ready, and nothing of it is handed out.

use std::collections::BTreeMap;

use windlass_core::{EventKind, Pause, Task, TaskId};
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::{Known, Truth},
    world::World,
};

/// An answer may be in the making for so long when the pause is written: stores may be slow.
const IN_THE_MAKING_MS: u64 = 10_000;

#[derive(Default)]
pub(super) struct PausedTasks {
    since: BTreeMap<TaskId, u64>,
}

impl Invariant for PausedTasks {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Task(change)) => {
                if let Some(known) = truth.tasks.get(&change.task.id) {
                    begins_nothing(known)?;
                }
                let paused = truth
                    .tasks
                    .get(&change.task.id)
                    .is_some_and(|known| known.task.state.pause == Pause::Held);
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
                Some(since) if world.now() > since + IN_THE_MAKING_MS => {
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
        if let (EventKind::ActReady { key, .. }, Pause::Held) = (&event.kind, task.state.pause) {
            let message = format!("task {} is paused, and {key:?} becomes ready", task.id);
            return Err(broken("paused tasks", task.id, message));
        }
        windlass_core::evolve(&mut task, event);
    }
    Ok(())
}
