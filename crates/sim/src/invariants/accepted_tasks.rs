//! A task that was told to be taken in is on disk, and a key names one task.

use std::collections::BTreeMap;

use windlass_core::TaskId;
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct AcceptedTasks {
    by_key: BTreeMap<[u8; 32], TaskId>,
}

impl Invariant for AcceptedTasks {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Task(change)) => {
                let Some(key) = &change.submit_key else { return Ok(()) };
                self.name(key.scope, change.task.id)
            }
            Seen::Accepted { task, key, same } => {
                if !truth.tasks.contains_key(task) {
                    let message = format!("task {task} was told to be taken in and is not on disk");
                    return Err(broken("accepted tasks", *task, message));
                }
                // Another task that is the same may stand for it, and is known under the key that it came with.
                let stands = |key: &[u8; 32]| {
                    same.is_some() && truth.tasks.get(task).is_some_and(|known| known.key != Some(*key))
                };
                key.filter(|key| !stands(key)).map_or(Ok(()), |key| self.name(key, *task))
            }
            _ => Ok(()),
        }
    }
}

impl AcceptedTasks {
    fn name(&mut self, key: [u8; 32], task: TaskId) -> Result<(), Violation> {
        match self.by_key.insert(key, task) {
            Some(other) if other != task => {
                let message = format!("one idempotency key names task {other} and task {task}");
                Err(broken("accepted tasks", task, message))
            }
            _ => Ok(()),
        }
    }
}
