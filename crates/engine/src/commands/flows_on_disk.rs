//! Versions of flows that are known to be on disk: who starts many tasks of the same flow need not wait for the disk each
//! time to learn that the flow is there.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_core::{Name, Timestamp};
use windlass_store::StoredFlow;

/// The most that are remembered. With more, all are forgotten and looked up again.
const COUNT_MAX: usize = 1_024;

/// Versions of flows that were on disk once. The time differs for a version that took the place of one after the flow was
/// removed.
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
