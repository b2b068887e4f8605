//! Of duplicate tasks one is accepted, as long as submits are deduplicated to it.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{During, Event, EventKind, Millis, Name, Phase, Task, TaskId, Timestamp};
use windlass_store::{Change, TaskChange};

use crate::invariants::{Invariant, broken};
use crate::{
    actors::KEPT_MS,
    config::Fault,
    judge::{Seen, Violation},
    kinds::Kind,
    truth::Truth,
    world::World,
};

/// The most milliseconds between a submit and its answer.
const SUBMIT_MS_MAX: Millis = Millis(6_000);

/// The start of wall time in every world.
const BEGIN_MS: i64 = 1_700_000_000_000;

#[derive(Default)]
pub(crate) struct UniqueTasks {
    /// The last accepted task of each unique key.
    newest: BTreeMap<(Name, Box<str>), TaskId>,
    /// Tasks of which a worker was given an attempt.
    begun: BTreeSet<TaskId>,
    /// Tasks that an import left without a unique key.
    without_key: BTreeSet<TaskId>,
    /// When the store last moved.
    moved_at: Option<Timestamp>,
}

impl Invariant for UniqueTasks {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Given { id, .. } => {
                self.begun.insert(id.task);
                Ok(())
            }
            Seen::Moved(tasks) => {
                let without_key = tasks.iter().filter(|task| task.input.unique.is_none());
                self.without_key.extend(without_key.map(|task| task.id));
                // Of several that run at once, because somebody overrode the key, the last one of the export counts.
                let keys = tasks.iter().filter(|task| task.flow.unique.is_some());
                self.newest = keys
                    .filter_map(|task| Some(((task.flow.name.clone(), task.input.unique.clone()?), task.id)))
                    .collect();
                self.moved_at = Some(wall(world));
                Ok(())
            }
            Seen::Written(Change::Task(change)) if change.before == 0 => self.take_in(change, truth, world),
            Seen::Accepted { task, key, same: Some(same) } => {
                self.check_span(*task, key.is_none(), truth, world)?;
                let known = truth.tasks.get(task).and_then(|known| known.task.input.unique.clone());
                // An import leaves out a key that an older task has. Answers from before it, and those to repeated submits
                // with an idempotency key, still name this task.
                let lost_key = known.is_none() && self.without_key.contains(task);
                if known.as_ref() == Some(same) || lost_key {
                    return Ok(());
                }
                let message = format!("task {task}, of {known:?}, was returned for a submit with {same}");
                Err(broken("unique tasks", *task, message))
            }
            _ => Ok(()),
        }
    }
}

impl UniqueTasks {
    /// A submit is not deduplicated to a task that ended longer ago than its flow says. A submit without an idempotency
    /// key is sent once, so that it is younger than its answer by [`SUBMIT_MS_MAX`] at most.
    fn check_span(
        &self,
        id: TaskId,
        is_sent_once: bool,
        truth: &Truth,
        world: &World,
    ) -> Result<(), Violation> {
        let task = truth.tasks.get(&id).map(|known| &*known.task).filter(|_| is_sent_once);
        let Some((task, unique)) = task.and_then(|task| Some((task, task.flow.unique.as_ref()?))) else {
            return Ok(());
        };
        let span = match unique.during {
            During::Finished(span) => span,
            During::Pending | During::Running => Millis(0),
        };
        let ended_at = task.state.ended_at;
        let over =
            ended_at.map(|ended_at| ended_at + span + SUBMIT_MS_MAX).filter(|over| *over < wall(world));
        if over.is_none() || world.config.faults.kinds.contains(&Fault::ClockJump) {
            return Ok(());
        }
        let message =
            format!("a submit was deduplicated to task {id}, {:?} {:?} after its end", unique.during, over);
        Err(broken("unique tasks", id, message))
    }

    fn take_in(&mut self, change: &TaskChange, truth: &Truth, world: &World) -> Result<(), Violation> {
        let task = &change.task;
        let Some((unique, key)) = task.flow.unique.as_ref().zip(task.input.unique.clone()) else {
            return Ok(());
        };
        let Some(first) = self.newest.insert((task.flow.name.clone(), key), task.id) else { return Ok(()) };
        let Some(first) = truth.tasks.get(&first).map(|known| &*known.task) else { return Ok(()) };
        world.count("unique: another one accepted");
        let overrides = |event: &Event| matches!(event.kind, EventKind::UniqueOverridden { .. });
        // Submits are not deduplicated to an unreadable task.
        if change.events.iter().any(overrides) || truth.is_damaged(first.id) {
            return Ok(());
        }
        if self.stands_for(first, task, unique.during, world) {
            let message = format!(
                "task {} was accepted at {:?}, though it is a duplicate of task {}, which ended at {:?}: {:?}",
                task.id, task.input.created_at, first.id, first.state.ended_at, unique.during
            );
            return Err(broken("unique tasks", task.id, message));
        }
        Ok(())
    }

    fn stands_for(&self, first: &Task, task: &Task, during: During, world: &World) -> bool {
        if (first.is_ended() && is_next_run(task, first)) || may_be_deleted(first, world) {
            return false;
        }
        match during {
            // The first one may be claimed already. Hand-outs of shared rows, and those of tasks that are read from the
            // disk, are seen a little later, and those over a broker and to devices are not seen.
            During::Pending => {
                let is_seen_at_once = !world.config.shared
                    && world.config.rest.head == usize::MAX
                    && !world.config.is(Kind::Broker)
                    && !world.config.is(Kind::Devices)
                    && !world.config.is(Kind::FewBytes);
                // A move forgets which tasks had begun. After it, nothing is deduplicated to a task that waited beside one of them.
                let has_moved = self.moved_at.is_some_and(|moved_at| first.input.created_at <= moved_at);
                let waits = matches!(first.state.phase, Phase::Scheduled | Phase::Forward);
                is_seen_at_once
                    && !has_moved
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

/// Whether the janitor may have deleted a task. A submit that waits longer than the retention, for example in
/// a paused server, is decided without it.
fn may_be_deleted(first: &Task, world: &World) -> bool {
    let gone_at = first.state.ended_at.map(|ended_at| ended_at + Millis(KEPT_MS));
    world.config.is(Kind::Sweeps) && gone_at.is_some_and(|gone_at| gone_at <= wall(world))
}

/// The time of a correct clock.
fn wall(world: &World) -> Timestamp {
    Timestamp(BEGIN_MS + i64::try_from(world.now()).unwrap_or(0))
}

/// Whether a task repeats an ended one: as its rerun, or as the next attempt of the step that started it.
fn is_next_run(task: &Task, ended: &Task) -> bool {
    let act = |task: &Task| task.input.parent.map(|parent| (parent.task, parent.key));
    task.input.rerun_of == Some(ended.id) || (act(task).is_some() && act(task) == act(ended))
}
