//! Reads pages of the outbox.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use windlass_core::{Event, Task, TaskId};
use windlass_store::{Announced, Loaded, Now, Portions, StoreError};

use super::OutboxRelay;

/// A page of the outbox.
pub(super) struct Page {
    /// It has tasks above this one.
    pub(super) above: TaskId,
    /// Its last task, unless it is the last page.
    pub(super) last: Option<TaskId>,
    pub(super) lines: Vec<Line>,
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
    /// A page of the outbox: its events by task, without those that were confirmed or rest. Events of tasks that were deleted
    /// meanwhile are dropped.
    pub(super) async fn read(&self, above: TaskId, now: Now) -> Result<Page, StoreError> {
        let waiting = self.engine.store.unannounced(above, self.page).await?;
        let mut last = waiting.last().filter(|_| waiting.len() == self.page).map(|change| change.task);
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
        let ids: Vec<TaskId> = events.keys().copied().collect();
        let tasks = self.tasks(&ids).await?;
        if tasks.len() < ids.len() {
            // The page ends where memory ends.
            last = tasks.len().checked_sub(1).map(|last| ids[last]);
        }
        let lines = events.into_values().zip(tasks);
        let lines = lines.filter_map(|(events, loaded)| Some(Line { task: loaded?.task, events }));
        Ok(Page { above, last, lines: lines.collect(), announced })
    }

    /// These tasks as subscribers need them. With parameters and results they may be only the first ones.
    async fn tasks(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        if !self.subscribers.iter().any(|subscriber| subscriber.reads_payloads()) {
            return self.engine.store.load_heads(ids).await;
        }
        let (mut tasks, mut portions) = (Vec::new(), Portions::default());
        while tasks.len() < ids.len()
            && let Some(count) = portions.next()
        {
            let rest = &ids[tasks.len()..];
            let loaded = self.engine.store.load_first(&rest[..count.min(rest.len())]).await?;
            let bytes = loaded.iter().flatten().map(|loaded| loaded.task.payload_bytes()).sum();
            portions.add(loaded.len(), bytes);
            tasks.extend(loaded);
        }
        Ok(tasks)
    }
}
