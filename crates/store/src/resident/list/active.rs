//! The part of a page that is in memory.
//!
//! A filter by parameters needs bodies, which may be on disk only. They are read in portions, and a portion is dropped
//! before the next one is read: a page looks at [`SCAN_MAX`] tasks, whatever their sizes.

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::TaskId;

use super::Part;
use crate::{
    port::{Loaded, Page, SCAN_MAX, StoreError, TaskQuery},
    resident::{Resident, bodies::LOADED_AT_ONCE, state::Inner},
};

/// What a page found out about tasks whose bodies are not in memory.
#[derive(Debug, Default)]
pub(super) struct Absent {
    /// Tasks whose parameters were compared with the filters. A second look at memory does not read them again.
    compared: BTreeSet<TaskId>,
    /// Tasks on the page without the parameters that the caller wants.
    to_read: BTreeSet<TaskId>,
}

/// How far a look at memory has come.
struct Scan {
    items: Vec<Loaded>,
    /// The task that was looked at last.
    before: TaskId,
    seen: usize,
    is_over: bool,
}

/// Tasks in memory that were looked at together.
#[derive(Default)]
struct Portion {
    items: Vec<Loaded>,
    /// Those of them whose parameters must still be compared with the filters.
    to_compare: Vec<TaskId>,
}

impl Resident {
    /// Active tasks in memory for a page.
    pub(super) async fn active_page(
        &self,
        query: &TaskQuery,
        absent: &mut Absent,
    ) -> Result<Part, StoreError> {
        let before = query.before.unwrap_or(TaskId(u128::MAX));
        let mut scan = Scan { items: Vec::new(), before, seen: 0, is_over: false };
        while !scan.is_over && scan.seen < SCAN_MAX && scan.items.len() < query.limit {
            let portion = self.inner().portion(query, &mut scan, absent);
            let found = self.compared(query, portion, absent).await?;
            scan.items.extend(found);
        }
        if scan.items.len() > query.limit {
            scan.items.truncate(query.limit);
            let next = scan.items.last().map(|loaded| loaded.task.id);
            return Ok(Page { items: scan.items, next });
        }
        let next = (!scan.is_over && scan.seen > 0).then_some(scan.before);
        Ok(Page { items: scan.items, next })
    }

    /// The tasks of a portion that meet the filters.
    async fn compared(
        &self,
        query: &TaskQuery,
        portion: Portion,
        absent: &mut Absent,
    ) -> Result<Vec<Loaded>, StoreError> {
        let Portion { mut items, to_compare } = portion;
        if to_compare.is_empty() {
            return Ok(items);
        }
        let read = self.load_tasks(&to_compare, false).await?;
        absent.compared.extend(&to_compare);
        // A task that is damaged, or was deleted meanwhile, is left out.
        let mut refused: BTreeSet<TaskId> = to_compare.into_iter().collect();
        for read in read.into_iter().flatten().filter(|read| query.admits(&read.task.input)) {
            refused.remove(&read.task.id);
            let item = items.iter_mut().find(|loaded| loaded.task.id == read.task.id);
            if let Some(item) = item.filter(|_| !query.brief) {
                Arc::make_mut(&mut item.task).input = read.task.input.clone();
            }
        }
        items.retain(|loaded| !refused.contains(&loaded.task.id));
        Ok(items)
    }

    /// Reads the parameters that the caller wants and that are not in memory. They never change.
    pub(super) async fn read_params(
        &self,
        items: &mut Vec<Loaded>,
        mut absent: Absent,
    ) -> Result<(), StoreError> {
        let ids = items.iter().map(|loaded| loaded.task.id);
        let wanted: Vec<TaskId> = ids.filter(|id| absent.to_read.contains(id)).collect();
        for some in wanted.chunks(LOADED_AT_ONCE) {
            for read in self.load_tasks(some, false).await?.into_iter().flatten() {
                absent.to_read.remove(&read.task.id);
                if let Some(item) = items.iter_mut().find(|loaded| loaded.task.id == read.task.id) {
                    Arc::make_mut(&mut item.task).input = read.task.input.clone();
                }
            }
        }
        // A task that is damaged, or was deleted meanwhile, is left out.
        items.retain(|loaded| !absent.to_read.contains(&loaded.task.id));
        Ok(())
    }
}

impl Inner {
    /// The next tasks for a page: until it is full, or until as many bodies must be read as may be read at once.
    fn portion(&self, query: &TaskQuery, scan: &mut Scan, absent: &mut Absent) -> Portion {
        let without_params = TaskQuery { params: Vec::new(), ..query.clone() };
        let mut portion = Portion::default();
        let mut sure = scan.items.len();
        for id in self.scheduler.active.range(..scan.before).rev().map(|(id, _)| *id) {
            let is_full = sure == query.limit || portion.to_compare.len() == LOADED_AT_ONCE;
            if is_full || scan.seen == SCAN_MAX {
                return portion;
            }
            (scan.before, scan.seen) = (id, scan.seen + 1);
            let is_absent = self.scheduler.is_body_away(id);
            let filters = if is_absent { &without_params } else { query };
            let loaded = self.scheduler.without_body(id);
            let Some(loaded) = loaded.filter(|loaded| filters.matches(&loaded.task, &loaded.held())) else {
                continue;
            };
            if is_absent && !query.params.is_empty() {
                if absent.compared.contains(&id) {
                    continue;
                }
                portion.to_compare.push(id);
            } else {
                sure += 1;
                if is_absent {
                    absent.to_read.insert(id);
                }
            }
            portion.items.push(loaded);
        }
        scan.is_over = true;
        portion
    }
}
