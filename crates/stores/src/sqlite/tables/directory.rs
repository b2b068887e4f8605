//! Where the rows of active tasks are.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_core::TaskId;

/// Numbers of a task's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) struct Place {
    /// `task.n`, which is also `active.task`.
    pub(in crate::sqlite) task: i64,
    /// Its newest row in `history`.
    pub(in crate::sqlite) last: i64,
}

/// From the ids of active tasks to their rows, as far as they are on disk. It saves an index on `task.id`,
/// which the writer would have to keep for every task; ended tasks are found through the key of `final`.
///
/// The writer changes it after each commit, readers look things up in it.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct Directory(Mutex<HashMap<TaskId, Place>>);

impl Directory {
    /// The directory itself. Nobody holds it while waiting for anything.
    pub(in crate::sqlite) fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Place>> {
        // Entries are whole at any time, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of an active task.
    pub(in crate::sqlite) fn get(&self, task: TaskId) -> Option<Place> {
        self.lock().get(&task).copied()
    }
}
