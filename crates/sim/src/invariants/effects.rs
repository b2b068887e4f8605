//! What commands do outside: at least once, and again only where the run before did not end in an accepted success.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, ActState, EventKind, ResolutionKind, TaskId};
use windlass_engine::ports::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Effects {
    /// Acts that had an effect.
    done: BTreeSet<(TaskId, ActKey)>,
    /// Acts that succeeded by a report.
    succeeded: BTreeMap<(TaskId, ActKey), u32>,
    /// The idempotency key of each act.
    keys: BTreeMap<String, (TaskId, ActKey)>,
}

impl Invariant for Effects {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        match seen {
            Seen::RunBegan { id, .. } => self.begin(id.task, id.key, truth),
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
                for event in &change.events {
                    match &event.kind {
                        EventKind::ActSucceeded { key, attempt, .. } => {
                            let act = (change.task.id, *key);
                            if !self.done.contains(&act) {
                                let message = format!("task {}: {key:?} succeeded without having run", act.0);
                                return Err(broken("effects", act.0, message));
                            }
                            self.succeeded.insert(act, *attempt);
                        }
                        EventKind::ActResolved { key, resolution: ResolutionKind::Retry, .. } => {
                            self.succeeded.remove(&(change.task.id, *key));
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Effects {
    /// Nothing that has succeeded is run again, but for what was on its way to a worker then.
    fn begin(&self, task: TaskId, key: ActKey, truth: &Truth) -> Result<(), Violation> {
        let Some(known) = truth.tasks.get(&task) else {
            return Err(broken("effects", task, format!("task {task} runs and is not on disk")));
        };
        let act = known.task.act(key);
        let never_ready = act.is_none_or(|act| act.state == ActState::Idle && act.attempt == 0);
        if never_ready {
            let message = format!("task {task}: {key:?} runs, and that it became ready is not on disk");
            return Err(broken("effects", task, message));
        }
        Ok(())
    }
}
