//! A page of tasks in the making: newest first, looked at one after the other where no index serves a filter.

use windlass_core::{TaskId, TaskStatus};
use windlass_store::{Loaded, Page, SCAN_MAX, TaskQuery};

use super::ENDED;

/// A page of tasks in the making.
pub(crate) struct Listing<'q> {
    query: &'q TaskQuery,
    /// Tasks below this one were not looked at.
    before: TaskId,
    items: Vec<Loaded>,
    looked_at: usize,
}

impl<'q> Listing<'q> {
    /// A page on which nothing is yet.
    pub(crate) fn new(query: &'q TaskQuery) -> Self {
        let before = query.before.unwrap_or(TaskId(u128::MAX));
        Self { query, before, items: Vec::new(), looked_at: 0 }
    }

    /// Tasks below this one are to be looked at next.
    pub(crate) fn before(&self) -> TaskId {
        self.before
    }

    /// How many of them. One more than are wanted tells whether there are any behind them.
    pub(crate) fn wanted(&self) -> usize {
        let wanted = self.query.limit.saturating_sub(self.items.len()).saturating_add(1);
        wanted.min(SCAN_MAX - self.looked_at + 1)
    }

    /// Looks at the next tasks, down to `end`, some of which could not be read. Gives the page when it is full; with
    /// `last` there are none behind them.
    pub(crate) fn look_at(
        &mut self,
        found: Vec<Loaded>,
        end: Option<TaskId>,
        last: bool,
    ) -> Option<Page<Loaded, TaskId>> {
        let mut next = None;
        for loaded in found {
            if self.items.len() >= self.query.limit || self.looked_at == SCAN_MAX {
                next = Some(self.before);
                break;
            }
            self.looked_at += 1;
            self.before = loaded.task.id;
            if self.query.matches(&loaded.task, &loaded.held()) {
                self.items.push(loaded);
            }
        }
        if next.is_none() {
            self.before = end.map_or(self.before, |end| end.min(self.before));
        }
        (last || next.is_some()).then(|| Page { items: std::mem::take(&mut self.items), next })
    }
}

/// The endings that are wanted, where tasks that have not ended are not.
pub(crate) fn only_ended(statuses: &[TaskStatus]) -> Option<Vec<i64>> {
    let code = |status: &TaskStatus| ENDED.iter().find(|(ended, _)| ended == status).map(|(_, code)| *code);
    let codes: Option<Vec<i64>> = statuses.iter().map(code).collect();
    codes.filter(|codes| !codes.is_empty())
}
