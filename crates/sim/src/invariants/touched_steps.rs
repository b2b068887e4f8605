//! What reached a worker is touched, and a task that failed ends when every touched step, and every touched member of
//! one, is undone or passed over.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, ActState, Direction, Ending, Phase, Task, TaskId};
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct TouchedSteps {
    /// What was begun by a worker on the way forward.
    ran: BTreeMap<TaskId, BTreeSet<ActKey>>,
}

impl Invariant for TouchedSteps {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        match seen {
            Seen::RunBegan { id, .. } if id.key.direction == Direction::Forward => {
                self.ran.entry(id.task).or_default().insert(id.key);
                Ok(())
            }
            Seen::Written(Change::Task(change)) => {
                let id = change.task.id;
                let Some(known) = truth.tasks.get(&id) else { return Ok(()) };
                let backward = matches!(
                    known.task.state.phase,
                    Phase::Ended(Ending::RolledBack | Ending::Failed | Ending::Cancelled)
                );
                if backward { self.check(&known.task) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}

impl TouchedSteps {
    fn check(&self, task: &Task) -> Result<(), Violation> {
        let nothing = BTreeSet::new();
        let ran = self.ran.get(&task.id).unwrap_or(&nothing);
        for (index, step) in task.state.steps.iter().enumerate() {
            let undone = matches!(step.undo.state, ActState::Succeeded | ActState::Skipped);
            let started = ran.iter().any(|key| key.step == index);
            let what = match (step.touched, started) {
                (true, _) if !undone => "touched",
                (false, true) => "started by a worker",
                _ => continue,
            };
            let message =
                format!("task {} has ended, and step {index}, which was {what}, is not undone", task.id);
            return Err(broken("touched steps", task.id, message));
        }
        for (index, members) in task.fans() {
            let undoes = task.flow.steps[index].rollback.is_some();
            for (number, member) in members.iter() {
                let key = ActKey::forward(index).of_member(number);
                let forgotten = member.touched && undoes && member.undo.state == ActState::Idle;
                if forgotten || !member.touched && ran.contains(&key) {
                    let message = format!("task {} has ended, and {key:?} is not undone", task.id);
                    return Err(broken("touched steps", task.id, message));
                }
            }
        }
        Ok(())
    }
}
