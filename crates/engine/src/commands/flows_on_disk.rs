//! Remembers which flow versions are on disk, so that applying the same flow again does not wait for a flush.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_core::{Name, Timestamp};
use windlass_store::StoredFlow;

/// The maximum number of remembered versions. A full set is emptied.
const COUNT_MAX: usize = 1_024;

/// Flow versions that were on disk once. The creation time distinguishes two versions with the same number, if the flow was
/// removed and applied again.
#[derive(Debug, Default)]
pub(crate) struct FlowsOnDisk(Mutex<BTreeSet<(Name, u32, Timestamp)>>);

impl FlowsOnDisk {
    pub(super) fn contains(&self, stored: &StoredFlow) -> bool {
        self.known().contains(&key(stored))
    }

    pub(super) fn insert(&self, stored: &StoredFlow) {
        let mut known = self.known();
        if known.len() >= COUNT_MAX {
            known.clear();
        }
        known.insert(key(stored));
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<(Name, u32, Timestamp)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(stored: &StoredFlow) -> (Name, u32, Timestamp) {
    (stored.flow.name.clone(), stored.flow.version, stored.created_at)
}
