//! Each attempt of a step that runs a flow has one child task. The child ends before its parent, and is
//! rolled back if its parent is.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, Direction, Ending, EventKind, Parent, Phase, Task, TaskId};
use windlass_store::Change;

use crate::invariants::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(crate) struct Children {
    /// The child task of each attempt that has one.
    by_attempt: BTreeMap<(TaskId, ActKey, u32), TaskId>,
    /// All children of a task.
    of_task: BTreeMap<TaskId, Vec<TaskId>>,
    /// Steps whose rollback an operator settled: the operator is responsible for their remaining effects.
    settled: BTreeSet<(TaskId, usize)>,
}

impl Invariant for Children {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let task = &*change.task;
        for event in &change.events {
            if let EventKind::ActResolved { key, .. } = &event.kind
                && key.direction == Direction::Rollback
            {
                self.settled.insert((task.id, key.step));
            }
        }
        if let Some(parent) = task.input.parent {
            if change.before == 0 {
                world.count("child started");
                self.begin(task, parent, truth)?;
            } else if change
                .events
                .iter()
                .any(|event| matches!(event.kind, EventKind::TaskRollingBack { .. }))
                && truth.tasks.get(&task.id).is_some_and(|known| known.before.is_ended())
            {
                world.count("child rolled back");
            }
        }
        self.check_end(task, truth)
    }
}

impl Children {
    fn begin(&mut self, task: &Task, parent: Parent, truth: &Truth) -> Result<(), Violation> {
        let known = truth.tasks.get(&parent.task).map(|known| &known.task);
        let act = known.and_then(|known| known.act(parent.key));
        if !act.is_some_and(|act| act.child() == Some(task.id) && act.attempt == parent.attempt) {
            let message =
                format!("task {} is a child, and no step of task {} waits for it", task.id, parent.task);
            return Err(broken("children", task.id, message));
        }
        self.of_task.entry(parent.task).or_default().push(task.id);
        match self.by_attempt.insert((parent.task, parent.key, parent.attempt), task.id) {
            Some(other) => {
                let message = format!("one attempt has started task {other} and task {}", task.id);
                Err(broken("children", parent.task, message))
            }
            None => Ok(()),
        }
    }

    /// When a task ends, its children have ended; when it is rolled back, they are too.
    fn check_end(&self, task: &Task, truth: &Truth) -> Result<(), Violation> {
        let Phase::Ended(ending) = task.state.phase else { return Ok(()) };
        for id in self.of_task.get(&task.id).into_iter().flatten() {
            let Some(child) = truth.tasks.get(id).map(|known| &known.task) else { continue };
            let step = child.input.parent.map_or(0, |parent| parent.key.step);
            let is_left = match child.state.phase {
                Phase::Ended(Ending::Succeeded) => {
                    ending != Ending::Succeeded && !self.settled.contains(&(task.id, step))
                }
                Phase::Ended(_) => false,
                Phase::Scheduled | Phase::Forward | Phase::Backward => true,
            };
            if is_left {
                let (parent, phase) = (task.id, child.state.phase);
                let message =
                    format!("task {parent} has ended as {ending:?}, and its child {id} is {phase:?}");
                return Err(broken("children", parent, message));
            }
        }
        Ok(())
    }
}
