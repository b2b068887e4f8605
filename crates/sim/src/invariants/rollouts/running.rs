//! Never are more tasks of a rollout under way than it allows.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Name, TaskId};

use super::{NAME, broken, changed_task, counts::is_rollback_stuck};
use crate::{
    invariants::Invariant,
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Running {
    /// Tasks that have not ended, by rollout.
    under_way: BTreeMap<Name, BTreeSet<TaskId>>,
    /// Tasks whose rollback has waited for an operator: after an abort, the rollout does not wait for them.
    left: BTreeSet<TaskId>,
}

impl Invariant for Running {
    fn see(&mut self, seen: &Seen, truth: &Truth, _: &World) -> Result<(), Violation> {
        let Some((task, name, ..)) = changed_task(seen) else { return Ok(()) };
        let Some(rollout) = truth.rollouts.get(name).map(|known| &known.now) else { return Ok(()) };
        let under_way = self.under_way.entry(rollout.name.clone()).or_default();
        if is_rollback_stuck(task) {
            self.left.insert(task.id);
        }
        if task.is_ended() || self.left.contains(&task.id) {
            under_way.remove(&task.id);
        } else {
            under_way.insert(task.id);
        }
        // Nobody knows how far a task with damaged rows is: it is not waited for.
        let running = under_way.iter().filter(|task| !truth.is_damaged(**task)).count();
        let most = rollout.definition.max_running;
        if running > usize::try_from(most).unwrap_or(usize::MAX) {
            let message =
                format!("task {} is under way, with {running} of rollout {name} instead of {most}", task.id);
            return Err(broken(NAME, task.id, message));
        }
        Ok(())
    }
}
