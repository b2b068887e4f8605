//! A step that reached a worker is touched, and a task that failed ends when every touched step is undone or
//! passed over.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActState, Direction, Ending, Phase, Task, TaskId};
use windlass_engine::ports::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct TouchedSteps {
    /// Steps whose forward command was started by a worker.
    ran: BTreeMap<TaskId, BTreeSet<usize>>,
}

impl Invariant for TouchedSteps {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        match seen {
            Seen::RunBegan { id, .. } if id.key.direction == Direction::Forward => {
                self.ran.entry(id.task).or_default().insert(id.key.step);
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
            let what = match (step.touched, ran.contains(&index)) {
                (true, _) if !undone => "touched",
                (false, true) => "started by a worker",
                _ => continue,
            };
            let message =
                format!("task {} has ended, and step {index}, which was {what}, is not undone", task.id);
            return Err(broken("touched steps", task.id, message));
        }
        Ok(())
    }
}
