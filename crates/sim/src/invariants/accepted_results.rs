//! Each act has at most one accepted result, from the worker that was given its attempt last, as far as the server
//! knows: a resident store forgets in a restart who has what, until workers name what they hold.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, EventKind, ResolutionKind, TaskId};
use windlass_store::{AttemptId, Change, TaskChange};

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct AcceptedResults {
    /// The highest claim under which a worker began each attempt before it ended.
    claims: BTreeMap<(TaskId, ActKey, u32), u64>,
    /// What was given to workers since the server that owns the store started: what came from one before it, though it be
    /// on its way still, this one does not know until the worker names it.
    given: BTreeSet<AttemptId>,
    /// What each run is of.
    runs: BTreeMap<u64, AttemptId>,
    /// Reports that were told to be accepted.
    accepted: BTreeMap<(TaskId, ActKey, u32), u64>,
    /// Acts that are done.
    done: BTreeSet<(TaskId, ActKey)>,
}

impl Invariant for AcceptedResults {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::ServerStarted if !world.config.shared => {
                self.claims.clear();
                self.given.clear();
                Ok(())
            }
            Seen::Given { id, .. } => {
                self.given.insert(*id);
                Ok(())
            }
            Seen::RunEnded { run, reported } => {
                // Nobody will report what a worker gave up, so another report of the attempt counts.
                if let Some(id) = self.runs.remove(run).filter(|_| !reported) {
                    self.claims.remove(&attempt(&id));
                }
                Ok(())
            }
            Seen::RunBegan { run, id, .. } => {
                self.runs.insert(*run, *id);
                let act = truth.tasks.get(&id.task).and_then(|known| known.task.act(id.key));
                let current = act.is_some_and(|act| act.is_open() && act.attempt == id.attempt);
                if current && self.given.contains(id) {
                    let claim = self.claims.entry(attempt(id)).or_default();
                    *claim = id.claim.max(*claim);
                }
                Ok(())
            }
            Seen::Reported { id, accepted: true } => self.accept(id, truth),
            Seen::Written(Change::Task(change)) => self.once(change),
            _ => Ok(()),
        }
    }
}

impl AcceptedResults {
    /// An act is done once, also if it is one of many members.
    fn once(&mut self, change: &TaskChange) -> Result<(), Violation> {
        for event in &change.events {
            let (EventKind::ActSucceeded { key, .. }
            | EventKind::ActResolved { key, resolution: ResolutionKind::Done, .. }) = &event.kind
            else {
                continue;
            };
            if !self.done.insert((change.task.id, *key)) {
                let message = format!("task {}: {key:?} succeeded twice", change.task.id);
                return Err(broken("accepted results", change.task.id, message));
            }
        }
        Ok(())
    }

    fn accept(&mut self, id: &AttemptId, truth: &Truth) -> Result<(), Violation> {
        let Some(known) = truth.tasks.get(&id.task) else {
            return Err(broken(
                "accepted results",
                id.task,
                format!("a report of task {} was accepted, which is not on disk", id.task),
            ));
        };
        let open = known.task.act(id.key).is_none_or(|act| {
            act.attempt == id.attempt
                && matches!(act.state, windlass_core::ActState::Ready | windlass_core::ActState::Parked)
        });
        if open {
            let message = format!(
                "task {}: the report of {:?} attempt {} was accepted and is not on disk",
                id.task, id.key, id.attempt
            );
            return Err(broken("accepted results", id.task, message));
        }
        if let Some(claim) = self.claims.get(&attempt(id)).filter(|claim| **claim > id.claim) {
            let message = format!(
                "task {}: the report of {:?} attempt {} was accepted under claim {:x}, while claim {claim:x} was with a worker",
                id.task, id.key, id.attempt, id.claim
            );
            return Err(broken("accepted results", id.task, message));
        }
        match self.accepted.insert(attempt(id), id.claim) {
            Some(other) if other != id.claim => {
                let message = format!(
                    "task {}: two reports of {:?} attempt {} were accepted",
                    id.task, id.key, id.attempt
                );
                Err(broken("accepted results", id.task, message))
            }
            _ => Ok(()),
        }
    }
}

fn attempt(id: &AttemptId) -> (TaskId, ActKey, u32) {
    (id.task, id.key, id.attempt)
}
