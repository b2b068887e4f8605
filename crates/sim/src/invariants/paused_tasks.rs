//! Nothing of a paused task is begun.

use std::collections::BTreeMap;

use windlass_core::{Pause, TaskId};
use windlass_engine::ports::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

/// An answer may be on its way to a worker for so long when the pause is written.
const ON_THE_WAY_MS: u64 = 20_000;

#[derive(Default)]
pub(super) struct PausedTasks {
    since: BTreeMap<TaskId, u64>,
}

impl Invariant for PausedTasks {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Task(change)) => {
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
            Seen::RunBegan { id, .. } => match self.since.get(&id.task) {
                Some(since) if world.now() > since + ON_THE_WAY_MS => {
                    let message = format!("task {} is paused, and {:?} is begun", id.task, id.key);
                    Err(broken("paused tasks", id.task, message))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
