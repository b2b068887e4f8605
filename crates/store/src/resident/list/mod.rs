//! Lists of tasks: those in memory, those that rest, and those that have ended.

mod active;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{Json, TaskId, TaskStatus};

use self::active::Absent;
use super::{Params, Resident, bodies::LOADED_AT_ONCE};
use crate::port::{Loaded, Page, SCAN_MAX, StoreError, TaskQuery};

/// How many of the tasks that rest are read at once where most of them may not be on the page. A task may have
/// parameters of 1 MiB.
const READ_AT_ONCE: usize = 100;

/// One of the lists that a page is made of.
type Part = Page<Loaded, TaskId>;

impl Resident {
    /// A page of tasks, newest first, as they are on disk.
    ///
    /// Memory is looked at before the disk is read, and once more when tasks came back to it meanwhile: one that
    /// goes from one to the other in between may be seen twice, and is shown as it was seen first. So it is
    /// never missed.
    pub(super) async fn page(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        let generation = self.current_generation().await?;
        if let Some(scopes) = &query.scopes {
            let found = self.sink.submit_keys(scopes).await?;
            let page = self.page_of_ids(query, found.into_iter().flatten().map(|(id, _)| id)).await?;
            self.settled(generation).await?;
            return Ok(page);
        }
        let (asks_active, asks_ended) =
            (asks_for(query, |status| !is_final(status)), asks_for(query, is_final));
        let mut parts = Vec::new();
        let (mut woken, mut absent) = (0, Absent::default());
        if asks_active {
            woken = self.inner().scheduler.woken;
            parts.push(self.active_page(query, &mut absent).await?);
        }
        // Tasks that come back to memory from here on stay there: the second look finds them.
        let reading = asks_active.then(|| self.begin_read());
        if asks_ended {
            let page = self.sink.ended_page(query).await?;
            let items = page.items.into_iter().filter_map(|row| self.loaded_row(row, generation).transpose());
            parts.push(Page { items: items.collect::<Result<_, _>>()?, next: page.next });
        }
        if asks_active {
            parts.push(self.resting_page(query, generation).await?);
            if self.inner().scheduler.woken != woken {
                parts.push(self.active_page(query, &mut absent).await?);
            }
        }
        let mut page = merged(parts, query.limit);
        if !query.brief {
            self.read_params(&mut page.items, absent).await?;
        }
        drop(reading);
        // What was seen in memory may still be on its way there.
        self.settled(generation).await?;
        Ok(page)
    }

    /// A page of tasks with these ids. They are read in portions, until the page is full.
    async fn page_of_ids(
        &self,
        query: &TaskQuery,
        ids: impl Iterator<Item = TaskId>,
    ) -> Result<Page<Loaded, TaskId>, StoreError> {
        let is_older = |id: &TaskId| query.before.is_none_or(|before| *id < before);
        let ids: BTreeSet<TaskId> = ids.filter(is_older).collect();
        let newest_first: Vec<TaskId> = ids.into_iter().rev().collect();
        let mut found = Vec::new();
        for some in newest_first.chunks(LOADED_AT_ONCE) {
            let loaded = match query.reads_params() {
                true => self.load_tasks(some, false).await?,
                false => self.heads(some).await?,
            };
            let wanted = loaded.into_iter().flatten().filter(|task| query.matches(&task.task, &task.held()));
            found.extend(wanted.map(|task| Some(if query.brief { task.bare() } else { task })));
            // One more than fits shows that there is a next page.
            if found.len() > query.limit {
                break;
            }
        }
        Ok(query.page_of(found))
    }

    /// Tasks that rest, for a page.
    async fn resting_page(&self, query: &TaskQuery, generation: u64) -> Result<Part, StoreError> {
        let mut items = Vec::new();
        let mut before = query.before.unwrap_or(TaskId(u128::MAX));
        let mut seen = 0;
        let params = if query.reads_params() { Params::Read } else { Params::LeftOut };
        while items.len() < query.limit && seen < SCAN_MAX {
            let room = query.limit - items.len();
            let room = if is_narrow(query) { READ_AT_ONCE } else { room };
            let at_once = room.min(SCAN_MAX - seen);
            let rows = self.sink.resting_page(before, at_once, params).await?;
            let is_last = rows.len() < at_once;
            for row in rows {
                if items.len() == query.limit {
                    return Ok(Page { items, next: Some(before) });
                }
                let id = row.as_ref().map_or_else(|damaged| damaged.id, |row| row.id);
                // Lists only go down, also where the id of a damaged row is wrong.
                (before, seen) = (before.min(id), seen + 1);
                let loaded = self.loaded_row(row, generation)?;
                let loaded = loaded.filter(|loaded| query.matches(&loaded.task, &loaded.held()));
                items.extend(loaded.map(|loaded| if query.brief { without_params(loaded) } else { loaded }));
            }
            if is_last {
                return Ok(Page { items, next: None });
            }
        }
        Ok(Page { items, next: (seen > 0).then_some(before) })
    }
}

/// The page that lists make together. Each is whole down to where it stopped.
fn merged(parts: Vec<Part>, limit: usize) -> Page<Loaded, TaskId> {
    let mut next = parts.iter().filter_map(|part| part.next).max();
    let mut tasks = BTreeMap::new();
    for loaded in parts.into_iter().flat_map(|part| part.items) {
        tasks.entry(loaded.task.id).or_insert(loaded);
    }
    let is_whole = |id: &TaskId| next.is_none_or(|next| *id >= next);
    let mut items: Vec<Loaded> =
        tasks.into_iter().rev().filter(|(id, _)| is_whole(id)).map(|(_, loaded)| loaded).collect();
    if items.len() > limit {
        items.truncate(limit);
        next = items.last().map(|loaded| loaded.task.id);
    }
    Page { items, next }
}

/// A task that was read for a page on which nobody looks at its parameters: they need not stay in memory.
fn without_params(mut loaded: Loaded) -> Loaded {
    Arc::make_mut(&mut Arc::make_mut(&mut loaded.task).input).params = Json::empty();
    loaded
}

/// Whether a task may be left out of a page for something else than its age.
fn is_narrow(query: &TaskQuery) -> bool {
    !query.statuses.is_empty()
        || !query.labels.is_empty()
        || query.flow.is_some()
        || query.since.is_some()
        || query.until.is_some()
        || query.unique.is_some()
        || !query.params.is_empty()
}

/// Whether tasks with a status that `test` is true for may be on a page.
fn asks_for(query: &TaskQuery, test: impl Fn(TaskStatus) -> bool) -> bool {
    query.statuses.is_empty() || query.statuses.iter().copied().any(test)
}

fn is_final(status: TaskStatus) -> bool {
    matches!(
        status,
        TaskStatus::Succeeded | TaskStatus::RolledBack | TaskStatus::Failed | TaskStatus::Cancelled
    )
}
