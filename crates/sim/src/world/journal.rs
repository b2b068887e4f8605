//! What the stores of a world do, and what is heard on its topic, in the order in which it happens.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::TaskId;
use windlass_store::{AttemptId, Change, StoreError, resident::Batch};

/// Something a store did.
pub(crate) enum Entry {
    /// It goes by these changes from now on, which are on their way to the disk.
    Staged(Arc<Batch>),
    /// A change is on disk.
    Written(Box<Change>),
    /// It has read the disk and goes by what is there: what was staged and not written is void.
    Recovered,
    /// An attempt was claimed in shared rows, and the answer is on its way.
    Claimed(AttemptId),
    /// The rows could not take what it wrote.
    Refused(StoreError),
    /// The event of a task with this number was heard on the topic.
    Announced { task: TaskId, n: u64 },
}

/// What all stores of a world did and nobody has looked at yet.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Entry>>>);

impl Journal {
    pub(crate) fn add(&self, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    pub(crate) fn written(&self, change: &Change) {
        self.add(Entry::Written(Box::new(change.clone())));
    }

    pub(crate) fn claimed(&self, id: AttemptId) {
        self.add(Entry::Claimed(id));
    }

    pub(super) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
