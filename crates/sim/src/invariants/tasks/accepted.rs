//! A task that was answered as accepted is on disk, and a key names one task.

use std::collections::BTreeMap;

use windlass_core::TaskId;
use windlass_store::Change;

use crate::invariants::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(crate) struct AcceptedTasks {
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
                    let message = format!("task {task} was answered as accepted and is not on disk");
                    return Err(broken("accepted tasks", *task, message));
                }
                // The submit may be deduplicated to a duplicate, which is known under its own key.
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
