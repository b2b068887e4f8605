//! Reads pages of the outbox.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use windlass_core::{Event, Task, TaskId};
use windlass_store::{Announced, Loaded, Now, StoreError};

use super::OutboxRelay;

/// The maximum number of tasks loaded with one request to the store.
const LOADED_AT_ONCE: usize = 250;

/// No more tasks are loaded for a page once their parameters and results have this size, in bytes.
const PAYLOADS_MAX: usize = 8 << 20;

/// A page of the outbox.
pub(super) struct Page {
    /// It has tasks above this one.
    pub(super) above: TaskId,
    /// Its last task, unless it is the last page.
    pub(super) last: Option<TaskId>,
    /// The events to announce, by task.
    pub(super) events: BTreeMap<TaskId, VecDeque<Next>>,
    /// Changes of which all events were confirmed before.
    pub(super) announced: Vec<Announced>,
}

/// The events to announce of one task in a round, in their order.
pub(super) struct Line {
    pub(super) task: Arc<Task>,
    pub(super) events: VecDeque<Next>,
}

pub(super) struct Next {
    pub(super) n: u64,
    pub(super) event: Event,
    /// Set for the last event of a change: its confirmation completes the change.
    pub(super) completes: Option<Announced>,
}

impl Line {
    /// Drops the events after the current change.
    pub(super) fn end_with_change(&mut self) {
        if let Some(last) = self.events.iter().position(|next| next.completes.is_some()) {
            self.events.truncate(last + 1);
        }
    }
}

impl OutboxRelay {
    /// A page of the outbox, without events that were confirmed or rest.
    pub(super) async fn read(&self, above: TaskId, now: Now) -> Result<Page, StoreError> {
        let waiting = self.engine.store.unannounced(above, self.page).await?;
        let last = waiting.last().filter(|_| waiting.len() == self.page).map(|change| change.task);
        let mut events: BTreeMap<TaskId, VecDeque<Next>> = BTreeMap::new();
        for change in waiting {
            let announced = change.announced();
            let last = change.after + change.events.len() as u64;
            let next = (change.after + 1..).zip(change.events).map(|(n, event)| Next {
                n,
                event,
                completes: (n == last).then_some(announced),
            });
            events.entry(change.task).or_default().extend(next);
        }
        let announced = self.progress().begin_page(&mut events, (above, last), now.mono);
        Ok(Page { above, last, events, announced })
    }

    /// The events of a page with their current tasks. If the tasks do not all fit in memory, the page ends earlier, and `last`
    /// changes. Events of deleted tasks are dropped.
    pub(super) async fn lines(
        &self,
        mut events: BTreeMap<TaskId, VecDeque<Next>>,
        last: &mut Option<TaskId>,
    ) -> Result<Vec<Line>, StoreError> {
        let mut tasks = self.with_payloads(&mut events, last).await?;
        let bare: Vec<TaskId> = events.keys().filter(|id| !tasks.contains_key(*id)).copied().collect();
        for ids in bare.chunks(LOADED_AT_ONCE) {
            let loaded = self.engine.store.load_heads(ids).await?.into_iter().flatten();
            // Some stores load parameters and results as well.
            tasks.extend(loaded.map(Loaded::bare).map(|loaded| (loaded.task.id, loaded.task)));
        }
        let lines = events.into_iter();
        let lines = lines.filter_map(|(id, events)| Some(Line { task: tasks.remove(&id)?, events }));
        Ok(lines.collect())
    }

    /// The tasks of which a subscriber reads parameters and results. If they do not all fit in memory, the page ends before the
    /// first one that is not loaded.
    async fn with_payloads(
        &self,
        events: &mut BTreeMap<TaskId, VecDeque<Next>>,
        last: &mut Option<TaskId>,
    ) -> Result<BTreeMap<TaskId, Arc<Task>>, StoreError> {
        let reads =
            |next: &Next| self.subscribers.iter().any(|subscriber| subscriber.reads_payload(&next.event));
        let are_read = events.iter().filter(|(_, events)| events.iter().any(reads));
        let ids: Vec<TaskId> = are_read.map(|(id, _)| *id).collect();
        let (mut tasks, mut done, mut bytes) = (BTreeMap::new(), 0, 0);
        while done < ids.len() && bytes < PAYLOADS_MAX {
            let some = &ids[done..ids.len().min(done + LOADED_AT_ONCE)];
            let loaded = self.engine.store.load_first(some).await?;
            done += loaded.len();
            for Loaded { task, .. } in loaded.into_iter().flatten() {
                bytes += task.payload_bytes();
                tasks.insert(task.id, task);
            }
        }
        if let Some(first) = ids.get(done) {
            drop(events.split_off(first));
            *last = events.keys().next_back().copied();
        }
        // Otherwise they would be loaded once more.
        events.retain(|id, _| tasks.contains_key(id) || ids.binary_search(id).is_err());
        Ok(tasks)
    }
}
