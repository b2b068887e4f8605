//! Reads pages of the outbox.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use windlass_core::{Event, EventKind, Task, TaskId};
use windlass_store::{Announced, Loaded, Now, Portions, StoreError};

use super::OutboxRelay;

/// The maximum number of tasks loaded with one request to the store.
const LOADED_AT_ONCE: usize = 250;

/// A page of the outbox.
pub(super) struct Page {
    /// It has tasks above this one.
    pub(super) above: TaskId,
    /// Its last task, unless it is the last page.
    pub(super) last: Option<TaskId>,
    /// The events to announce, by task.
    pub(super) events: BTreeMap<TaskId, VecDeque<Next>>,
    /// The tasks that had ended when the page was read, if a subscriber reads their parameters and results. If such a task is
    /// rolled back with its parent, a later event says so. The others are read when their events are announced: they may have
    /// ended by then.
    pub(super) ended: BTreeMap<TaskId, Arc<Task>>,
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
        let mut page = Page { above, last, events, ended: BTreeMap::new(), announced };
        let mut tasks = self.with_payloads(&mut page).await?;
        tasks.retain(|_, task| task.is_ended());
        page.ended = tasks;
        Ok(page)
    }

    /// The events of a page with their current tasks. If not all tasks fit in memory, the page ends earlier. Events of deleted
    /// tasks are dropped.
    pub(super) async fn lines(&self, page: &mut Page) -> Result<Vec<Line>, StoreError> {
        let mut tasks = self.with_payloads(page).await?;
        tasks.append(&mut page.ended);
        let mut bare: Vec<TaskId> =
            page.events.keys().filter(|id| !tasks.contains_key(*id)).copied().collect();
        self.move_kept(&mut bare, &page.events, &mut tasks);
        for ids in bare.chunks(LOADED_AT_ONCE) {
            let loaded = self.engine.store.load_heads(ids).await?.into_iter().flatten();
            // Some stores load parameters and results as well.
            tasks.extend(loaded.map(Loaded::bare).map(|loaded| (loaded.task.id, loaded.task)));
        }
        let lines = std::mem::take(&mut page.events).into_iter();
        let lines = lines.filter_map(|(id, events)| Some(Line { task: tasks.remove(&id)?, events }));
        Ok(lines.collect())
    }

    /// Loads the tasks whose parameters and results a subscriber reads, except those in `page.ended`. If not all of them fit in
    /// memory, the page ends before the first one that is not loaded.
    async fn with_payloads(&self, page: &mut Page) -> Result<BTreeMap<TaskId, Arc<Task>>, StoreError> {
        let reads =
            |next: &Next| self.subscribers.iter().any(|subscriber| subscriber.reads_payload(&next.event));
        let are_read = page.events.iter().filter(|(_, events)| events.iter().any(reads));
        let ids = are_read.map(|(id, _)| *id).filter(|id| !page.ended.contains_key(id));
        let (mut tasks, mut ids) = (BTreeMap::new(), ids.collect::<Vec<TaskId>>());
        self.move_kept(&mut ids, &page.events, &mut tasks);
        let (mut portions, mut rest) = (Portions::default(), &ids[..]);
        while !rest.is_empty()
            && let Some(count) = portions.next()
        {
            let (some, behind) = rest.split_at(count.min(rest.len()));
            let mut bytes = 0;
            for Loaded { task, .. } in self.engine.store.load(some).await?.into_iter().flatten() {
                bytes += task.payload_bytes();
                tasks.insert(task.id, task);
            }
            portions.add(some.len(), bytes);
            rest = behind;
        }
        if let Some(first) = rest.first() {
            drop(page.events.split_off(first));
            page.last = page.events.keys().next_back().copied();
        }
        // Otherwise they would be loaded once more.
        page.events.retain(|id, _| tasks.contains_key(id) || ids.binary_search(id).is_err());
        Ok(tasks)
    }

    /// Moves the tasks that are kept in memory from `ids` to `tasks`. The others must be read.
    fn move_kept(
        &self,
        ids: &mut Vec<TaskId>,
        events: &BTreeMap<TaskId, VecDeque<Next>>,
        tasks: &mut BTreeMap<TaskId, Arc<Task>>,
    ) {
        ids.retain(|id| match self.kept_task(*id, &events[id]) {
            Some(task) => tasks.insert(*id, task).is_some(),
            None => true,
        });
    }

    /// The task of these events, with its parameters and results, if it has ended and is kept in memory.
    fn kept_task(&self, id: TaskId, events: &VecDeque<Next>) -> Option<Arc<Task>> {
        let announcing = &self.engine.announcing;
        let ends = events.iter().any(|next| matches!(next.event.kind, EventKind::TaskEnded(_)));
        let task = if ends { announcing.take_ended_task(id) } else { announcing.ended_task(id) }?;
        // Commits of one task may be noted in another order.
        events.back().is_none_or(|last| last.n <= task.state.events).then_some(task)
    }
}
