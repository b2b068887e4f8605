//! External effects of commands: only durable attempts run, only executed work succeeds, and each execution
//! has its own idempotency key.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, EventKind, Task, TaskId};
use windlass_store::{AttemptId, Change};

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Effects {
    /// Executions with an effect.
    done: BTreeSet<(TaskId, ActKey)>,
    /// The idempotency key of each execution.
    keys: BTreeMap<String, (TaskId, ActKey)>,
}

impl Invariant for Effects {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Given { id, .. } => self.hand_out(id, truth),
            Seen::Effect { id, key } => {
                self.done.insert((id.task, id.key));
                match self.keys.insert(key.clone(), (id.task, id.key)) {
                    Some(other) if other != (id.task, id.key) => {
                        let message =
                            format!("task {}: {:?} and {other:?} share the key {key}", id.task, id.key);
                        Err(broken("effects", id.task, message))
                    }
                    _ => Ok(()),
                }
            }
            Seen::Written(Change::Task(change)) => {
                let mut succeeded = change.events.iter().filter_map(|event| match event.kind {
                    EventKind::ActSucceeded { key, .. } if runs(&change.task, key) => {
                        Some((change.task.id, key))
                    }
                    _ => None,
                });
                match succeeded.find(|act| !self.done.contains(act)) {
                    Some((task, key)) => {
                        let message = format!("task {task}: {key:?} succeeded without having run");
                        Err(broken("effects", task, message))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Whether a worker runs it: not a signal or a device, and not a step with `each` as a whole.
fn runs(task: &Task, key: ActKey) -> bool {
    let by_members = task.state.steps[key.step].members.is_some() && !key.is_member();
    !by_members
        && task.action(key).is_some_and(|action| action.worker().is_some() && action.device_job().is_none())
}

impl Effects {
    /// No attempt is handed out before it is on disk.
    fn hand_out(&self, id: &AttemptId, truth: &Truth) -> Result<(), Violation> {
        let act = truth.tasks.get(&id.task).and_then(|known| known.task.act(id.key));
        if act.is_none_or(|act| act.attempt < id.attempt) {
            let message = format!(
                "task {}: {:?} attempt {} was handed out and is not on disk",
                id.task, id.key, id.attempt
            );
            return Err(broken("effects", id.task, message));
        }
        Ok(())
    }
}
