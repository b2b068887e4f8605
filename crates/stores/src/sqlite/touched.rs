//! What a transaction does to tasks, and where it leaves them.

use std::collections::{BTreeSet, HashMap};

use windlass_core::{Phase, Task, TaskId, Timestamp};
use windlass_store::resident::Rest;

use super::directory::{Directory, Place};

/// What a transaction did to the tasks in it. Several changes of one task write its active row once.
#[derive(Default)]
pub(super) struct Touched<'b> {
    pub(super) tasks: HashMap<TaskId, Draft<'b>>,
    pub(super) latest_at: Timestamp,
}

/// A task as the transaction leaves it.
pub(super) struct Draft<'b> {
    pub(super) place: Place,
    pub(super) task: &'b Task,
    /// Where its state was before the transaction.
    pub(super) was: Home,
    /// How it rests after its last change, if it does.
    pub(super) rest: Option<&'b Rest>,
    /// The members that its changes have changed, by step and number.
    pub(super) members: BTreeSet<(usize, u32)>,
}

/// Which table has the state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// None yet.
    New,
    Active,
    Resting,
    /// It had ended: a child that succeeded, and is undone with its parent.
    Final,
}

impl Draft<'_> {
    /// Which table has its state after the transaction; none once it has ended.
    pub(super) fn home(&self) -> Option<Home> {
        match (self.task.state.phase, self.rest) {
            (Phase::Ended(_), _) => None,
            (_, Some(_)) => Some(Home::Resting),
            (_, None) => Some(Home::Active),
        }
    }
}

impl Touched<'_> {
    /// Puts the tasks into the directory where they are now. Called once the transaction is on disk.
    pub(super) fn publish(self, directory: &Directory) {
        let mut active = directory.lock();
        for (id, draft) in self.tasks {
            match draft.home() {
                Some(Home::Active) => active.insert(id, draft.place),
                _ => active.remove(&id),
            };
        }
    }
}
