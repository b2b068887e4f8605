//! Flows that tasks brought along, and that have no task any more: they go.
//!
//! Whether a flow has tasks is known on disk; of one that a new task was staged for, the overlay knows it. A task that comes
//! later, or was made of the flow before it went, [brings it along](Scheduler::bring_along) once more.

use std::{collections::BTreeMap, ops::Bound};

use windlass_core::{ADHOC_PREFIX, Name, is_adhoc};

use super::{Batch, Resident, scheduler::Scheduler};
use crate::port::{Change, StoreError, StoredFlow};

/// Flows looked at in one go.
const LOOK_AT: usize = 1_000;

/// What is known of flows that go.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// The last flow that was looked at: the next look goes on after it.
    after: Option<Name>,
    /// Those that went last: who has read a task of them just before it was deleted finds them still.
    gone: BTreeMap<Name, StoredFlow>,
}

impl Scheduler {
    /// A new task whose flow is to be distinguished by its name has it, also where it went before: as the change
    /// that writes it.
    pub(super) fn bring_along(&mut self, change: &Change) -> Option<Change> {
        let Change::Task(change) = change else { return None };
        let flow = &change.task.flow;
        if change.before != 0 || !is_adhoc(flow.name.as_str()) {
            return None;
        }
        self.brought.stage(flow.name.clone(), change.task.id);
        if self.flows.contains_key(&flow.name) {
            return None;
        }
        let stored = StoredFlow { flow: flow.clone(), created_at: change.task.input.created_at };
        self.flows.insert(flow.name.clone(), vec![stored.clone()]);
        Some(Change::Flow(stored))
    }

    /// A flow that is there, or was a moment ago.
    pub(super) fn flow_of_row(&self, name: &str, version: u32) -> Option<StoredFlow> {
        let gone = || self.leaving.gone.get(name).filter(|stored| stored.flow.version == version).cloned();
        self.flow(name, Some(version)).or_else(gone)
    }

    /// The next flows to look at, in the order of their names.
    fn look(&mut self) -> Vec<Name> {
        let from = match &self.leaving.after {
            Some(after) => Bound::Excluded(after.as_str()),
            None => Bound::Included(ADHOC_PREFIX),
        };
        let names = self.flows.range::<str, _>((from, Bound::Unbounded)).map(|(name, _)| name);
        let names = names.take_while(|name| name.as_str().starts_with(ADHOC_PREFIX));
        let names: Vec<Name> = names.filter(|name| is_adhoc(name.as_str())).take(LOOK_AT).cloned().collect();
        // The next look goes on where this one ends, and begins again at the end.
        self.leaving.after = names.get(LOOK_AT - 1).cloned();
        names
    }

    /// Of flows that have no task on disk at most `limit` go that none is staged for.
    fn leave(&mut self, unused: impl Iterator<Item = Name>, limit: usize) -> Vec<Name> {
        let unused = unused.filter(|name| self.brought.get(name).is_none()).take(limit);
        let unused: Vec<Name> = unused.collect();
        let gone = unused.iter().filter_map(|name| Some((name.clone(), self.flows.remove(name)?.pop()?)));
        self.leaving.gone = gone.collect();
        unused
    }
}

impl Resident {
    /// Forgets at most `limit` flows that came with tasks and have none any more. Returns how many were deleted.
    pub(super) async fn sweep_flows(&self, limit: usize) -> Result<usize, StoreError> {
        if limit == 0 {
            return Ok(0);
        }
        let generation = self.current_generation().await?;
        let _reading = self.begin_read();
        let names = self.inner().scheduler.look();
        if names.is_empty() {
            return Ok(0);
        }
        let have_tasks = self.sink.have_tasks(&names).await?;
        let unused = names.into_iter().zip(have_tasks).filter(|(_, has_tasks)| !has_tasks);
        let ticket = {
            let mut inner = self.inner();
            if inner.void || inner.scheduler.generation != generation {
                return Ok(0);
            }
            let unused_flows = inner.scheduler.leave(unused.map(|(name, _)| name), limit);
            if unused_flows.is_empty() {
                return Ok(0);
            }
            let count = unused_flows.len();
            (self.give(&mut inner, Batch { unused_flows, ..Batch::default() }), count)
        };
        ticket.0.written().await?;
        Ok(ticket.1)
    }
}
