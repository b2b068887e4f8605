//! Tasks with unreadable rows. They are left out of all work, and nothing is expected of tasks that wait for
//! them.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::TaskId;

use crate::truth::Known;

/// Tasks with unreadable rows.
#[derive(Default)]
pub(crate) struct Damage {
    tasks: BTreeSet<TaskId>,
}

impl Damage {
    pub(crate) fn add(&mut self, task: TaskId) {
        self.tasks.insert(task);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether the rows of this task are damaged.
    pub(crate) fn has(&self, task: TaskId) -> bool {
        self.tasks.contains(&task)
    }

    /// Whether the rows of this task are damaged, or those of an ancestor or descendant.
    pub(crate) fn concerns(&self, task: TaskId, known: &BTreeMap<TaskId, Known>) -> bool {
        if self.tasks.is_empty() {
            return false;
        }
        let (mut seen, mut next) = (BTreeSet::new(), vec![task]);
        while let Some(task) = next.pop() {
            if self.has(task) {
                return true;
            }
            if !seen.insert(task) {
                continue;
            }
            next.extend(known.get(&task).and_then(|known| known.task.input.parent).map(|parent| parent.task));
            let is_child = |known: &&Known| known.task.input.parent.is_some_and(|parent| parent.task == task);
            next.extend(known.values().filter(is_child).map(|known| known.task.id));
            let awaited = known.get(&task).into_iter().flat_map(|known| known.task.open_acts());
            next.extend(awaited.filter_map(|(_, act)| act.child()));
        }
        false
    }
}
