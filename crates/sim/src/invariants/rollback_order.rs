//! Steps are undone in reverse: each after every touched step that came after it, and after all that was in flight.

use windlass_core::{ActState, Direction, EventKind, Task};
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct RollbackOrder;

impl Invariant for RollbackOrder {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let id = change.task.id;
        let Some(known) = truth.tasks.get(&id) else { return Ok(()) };
        let mut task = Task::clone(&known.before);
        for event in &known.events {
            windlass_core::evolve(&mut task, event);
            if let EventKind::ActReady { key, .. } | EventKind::ActSkipped { key } = event.kind
                && key.direction == Direction::Rollback
                && let Some(why) = too_early(&task, key.step)
            {
                let message = format!("task {id}: the undo of step {} begins while {why}", key.step);
                return Err(broken("rollback order", id, message));
            }
        }
        Ok(())
    }
}

fn too_early(task: &Task, step: usize) -> Option<String> {
    let steps = &task.state.steps;
    if let Some((open, _)) = task.open_acts().find(|(key, _)| key.direction == Direction::Forward) {
        return Some(format!("{open:?} is in flight"));
    }
    let later = |later: &usize| task.flow.ancestors(*later)[step] && steps[*later].touched;
    let undone = |state: ActState| matches!(state, ActState::Succeeded | ActState::Skipped);
    let later = (0..steps.len()).filter(later).find(|later| !undone(steps[*later].undo.state));
    later.map(|later| format!("step {later}, which came after it, is not undone"))
}
