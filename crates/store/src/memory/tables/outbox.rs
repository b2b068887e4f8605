//! What happened and is to be announced.

use std::ops::{Bound, RangeInclusive};

use windlass_core::TaskId;

use super::Tables;
use crate::port::{Announced, TaskChange, Unannounced};

impl Tables {
    /// Keeps what is to be announced of a change.
    pub(super) fn keep_unannounced(&mut self, change: &TaskChange) {
        if change.announces && !change.events.is_empty() {
            let named = Announced { task: change.task.id, after: change.before };
            self.outbox.insert(named, change.events.len() as u64);
        }
    }

    /// These were announced.
    pub(super) fn forget_announced(&mut self, announced: &[Announced]) {
        for named in announced {
            self.outbox.remove(named);
        }
    }

    /// Whether anything of a task is to be announced.
    pub(super) fn is_unannounced(&self, task: TaskId) -> bool {
        self.outbox.range(all_of(task)).next().is_some()
    }

    /// What is to be announced of a task: how many events each has.
    pub(in crate::memory) fn unannounced_of(&self, task: TaskId) -> impl Iterator<Item = (Announced, u64)> {
        self.outbox.range(all_of(task)).map(|(named, count)| (*named, *count))
    }

    /// At most `limit` of what is to be announced of tasks above `above`, in the order of tasks and of what happened to
    /// each.
    pub(in crate::memory) fn unannounced(&self, above: TaskId, limit: usize) -> Vec<Unannounced> {
        let behind = (Bound::Excluded(Announced { task: above, after: u64::MAX }), Bound::Unbounded);
        let some = self.outbox.range(behind).take(limit);
        let events = |task, after, count| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            self.events(task, after, count).into_iter().map(|(_, event)| event).collect()
        };
        some.map(|(&Announced { task, after }, &count)| Unannounced {
            task,
            after,
            events: events(task, after, count),
        })
        .collect()
    }
}

fn all_of(task: TaskId) -> RangeInclusive<Announced> {
    Announced { task, after: 0 }..=Announced { task, after: u64::MAX }
}
