//! Of tasks that are the same one is taken in, for as long as it stands for the others.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{During, Event, EventKind, Name, Phase, Task, TaskId};
use windlass_engine::ports::{Change, TaskChange};

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    kinds::Kind,
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct UniqueTasks {
    /// The task that was taken in last, of those that are the same.
    newest: BTreeMap<(Name, Box<str>), TaskId>,
    /// Tasks of which a worker was given something.
    begun: BTreeSet<TaskId>,
}

impl Invariant for UniqueTasks {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Given { id, .. } => {
                self.begun.insert(id.task);
                Ok(())
            }
            Seen::Written(Change::Task(change)) if change.before == 0 => self.take_in(change, truth, world),
            Seen::Accepted { task, same: Some(same), .. } => {
                let known = truth.tasks.get(task).and_then(|known| known.task.input.unique.clone());
                if known.as_ref() == Some(same) {
                    return Ok(());
                }
                let message = format!("task {task}, of {known:?}, was told to stand for one of {same}");
                Err(broken("unique tasks", *task, message))
            }
            _ => Ok(()),
        }
    }
}

impl UniqueTasks {
    fn take_in(&mut self, change: &TaskChange, truth: &Truth, world: &World) -> Result<(), Violation> {
        let task = &change.task;
        let Some((unique, key)) = task.flow.unique.as_ref().zip(task.input.unique.clone()) else {
            return Ok(());
        };
        let Some(first) = self.newest.insert((task.flow.name.clone(), key), task.id) else { return Ok(()) };
        let Some(first) = truth.tasks.get(&first).map(|known| &*known.task) else { return Ok(()) };
        world.count("unique: another one taken in");
        let overrides = |event: &Event| matches!(event.kind, EventKind::UniqueOverridden { .. });
        // One that cannot be read does not stand for others.
        if change.events.iter().any(overrides) || truth.is_damaged(first.id) {
            return Ok(());
        }
        if self.stands_for(first, task, unique.during, world) {
            let message = format!(
                "task {} was taken in, for which task {} stands, {:?}",
                task.id, first.id, unique.during
            );
            return Err(broken("unique tasks", task.id, message));
        }
        Ok(())
    }

    fn stands_for(&self, first: &Task, task: &Task, during: During, world: &World) -> bool {
        if first.is_ended() && is_next_run(task, first) {
            return false;
        }
        match during {
            // What shared rows have handed out is seen a little later, and what is offered on a broker is not.
            During::Pending => {
                let waits = matches!(first.state.phase, Phase::Scheduled | Phase::Forward);
                !(world.config.shared || world.config.is(Kind::Broker))
                    && waits
                    && !self.begun.contains(&first.id)
                    && first.state.started_at.is_none()
            }
            During::Running => !first.is_ended(),
            During::Finished(span) => {
                first.state.ended_at.is_none_or(|ended_at| ended_at + span > task.input.created_at)
            }
        }
    }
}

/// Whether a task does again what an ended one did: as its rerun, or as the next attempt of the step that started it.
fn is_next_run(task: &Task, ended: &Task) -> bool {
    let act = |task: &Task| task.input.parent.map(|parent| (parent.task, parent.key));
    task.input.rerun_of == Some(ended.id) || (act(task).is_some() && act(task) == act(ended))
}
