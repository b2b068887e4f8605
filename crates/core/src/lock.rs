//! Locks: a named resource with one holder, waiters in order, and a fencing token that only grows.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{Name, TaskId};

/// The name of a lock.
pub type LockName = Name;

/// Who holds a lock or waits for it: a step of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockOwner {
    /// The task.
    pub task: TaskId,
    /// Index of its step.
    pub step: usize,
}

/// A named resource. Devices and exclusive queues are locks as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Its name.
    pub name: LockName,
    /// Who has it.
    pub holder: Option<LockOwner>,
    /// Who waits, first come first served.
    pub waiters: VecDeque<LockOwner>,
    /// Grows each time the lock changes hands; what the holder touches checks it.
    pub fence: u64,
}
