//! Once the world is calm, every task ends, with the outcome that its events imply.

use windlass_core::{Cause, Ending, EventKind, Task};
use windlass_store::Change;

use crate::invariants::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(crate) struct EveryTaskEnds;

impl Invariant for EveryTaskEnds {
    fn see(&mut self, seen: &Seen, _truth: &Truth, _world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        for event in &change.events {
            if let EventKind::TaskEnded(ending) = event.kind
                && !fits(&change.task, ending)
            {
                let cause = &change.task.state.cause;
                let message = format!("task {} ended as {ending:?} after {cause:?}", change.task.id);
                return Err(broken("ending", change.task.id, message));
            }
        }
        Ok(())
    }

    fn at_rest(&mut self, truth: &Truth) -> Result<(), Violation> {
        match truth.unfinished().first() {
            Some(task) => {
                let message = format!("task {} does not end: {:?}", task.id, task.state);
                Err(broken("ending", task.id, message))
            }
            None => Ok(()),
        }
    }
}

/// Whether this ending fits a task that succeeded, or rolled back for this cause: it is "rolled back" if a
/// rollback was tried.
fn fits(task: &Task, ending: Ending) -> bool {
    let was_rolled_back = task.flow.plain_steps().any(|step| task.state.steps[step].undo.attempt > 0);
    match &task.state.cause {
        None => ending == Ending::Succeeded,
        Some(Cause::Cancel { .. }) => ending == Ending::Cancelled,
        Some(Cause::Parent) => matches!(ending, Ending::Cancelled | Ending::RolledBack),
        Some(_) if was_rolled_back => ending == Ending::RolledBack,
        Some(_) => ending == Ending::Failed,
    }
}
