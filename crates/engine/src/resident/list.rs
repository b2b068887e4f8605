//! Lists of tasks: those in memory, and those that have ended from the disk.

use std::collections::BTreeSet;

use windlass_core::{TaskId, TaskStatus};

use super::Resident;
use crate::ports::{Loaded, Page, SCAN_MAX, StoreError, TaskQuery};

impl Resident {
    /// A page of tasks, newest first, as they are on disk.
    ///
    /// Active tasks are looked at before the disk is read: one that ends in between is then seen twice, and
    /// shown as it was in memory. The other way round it would not be seen at all.
    pub(super) async fn page(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        let generation = self.current_generation().await?;
        let (active, active_next) = self.active_page(query);
        let page = if asks_for(query, is_final) {
            self.sink.ended_page(query).await?
        } else {
            Page { items: Vec::new(), next: None }
        };
        // What was seen in memory may still be on its way there.
        self.settled(generation).await?;
        let seen: BTreeSet<TaskId> = active.iter().map(|loaded| loaded.task.id).collect();
        let mut items = active;
        for row in page.items.into_iter().filter(|row| !seen.contains(&row.id)) {
            items.push(self.ended(row)?);
        }
        items.sort_by_key(|loaded| std::cmp::Reverse(loaded.task.id));
        // Both lists are whole down to where either of them stopped.
        let mut next = active_next.max(page.next);
        if let Some(next) = next {
            items.retain(|loaded| loaded.task.id >= next);
        }
        if items.len() > query.limit {
            items.truncate(query.limit);
            next = items.last().map(|loaded| loaded.task.id);
        }
        Ok(Page { items, next })
    }

    /// Active tasks for a page, and where the next one begins when there may be more.
    fn active_page(&self, query: &TaskQuery) -> (Vec<Loaded>, Option<TaskId>) {
        let mut items = Vec::new();
        if !asks_for(query, |status| !is_final(status)) {
            return (items, None);
        }
        let inner = self.inner();
        let until = query.before.unwrap_or(TaskId(u128::MAX));
        let mut last = None;
        for (seen, (id, _)) in inner.scheduler.active.range(..until).rev().enumerate() {
            if items.len() == query.limit || seen == SCAN_MAX {
                return (items, last);
            }
            last = Some(*id);
            let loaded = inner.scheduler.loaded(*id);
            items.extend(loaded.filter(|loaded| query.matches(&loaded.task, &loaded.held())));
        }
        (items, None)
    }
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
