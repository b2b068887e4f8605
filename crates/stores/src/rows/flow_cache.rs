//! Flows that were read: a version never changes, so it is read once.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use windlass_core::{Flow, Name, TaskId, Timestamp};
use windlass_store::{DamagedTask, Quarantine, StoreError, StoredFlow, stored};

use super::small;

/// The flows that were read.
#[derive(Debug, Default)]
pub(crate) struct FlowCache {
    known: RwLock<HashMap<(Name, u32), StoredFlow>>,
}

impl FlowCache {
    /// A flow that was read before.
    pub(crate) fn get(&self, name: &Name, version: u32) -> Option<StoredFlow> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(name.clone(), version)).cloned()
    }

    /// Those of these flows that were read before, in their order.
    pub(crate) fn get_all(&self, keys: &[(Name, u32)]) -> Vec<StoredFlow> {
        keys.iter().filter_map(|(name, version)| self.get(name, *version)).collect()
    }

    /// The flow of a task.
    pub(crate) fn of_task(&self, id: TaskId, name: &Name, version: u32) -> Result<Arc<Flow>, StoreError> {
        let flow = self.get(name, version).map(|stored| stored.flow);
        flow.ok_or_else(|| {
            StoreError::Damaged(format!("task {id} is of flow {name} version {version}, which is not there"))
        })
    }

    /// Those of these flows that are to be read.
    pub(crate) fn unknown(&self, wanted: impl Iterator<Item = (Name, u32)>) -> BTreeSet<(Name, u32)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        wanted.filter(|key| !known.contains_key(key)).collect()
    }

    /// A flow that was looked for; nothing = it is not there.
    ///
    /// # Errors
    /// When its row is damaged.
    pub(crate) fn readable(
        &self,
        quarantine: &Quarantine,
        name: &Name,
        version: u32,
    ) -> Result<Option<StoredFlow>, StoreError> {
        match self.get(name, version) {
            None if quarantine.has_row(&DamagedTask::flow(name.as_str(), version, "").row) => {
                Err(StoreError::Damaged(format!("flow {name} version {version}")))
            }
            found => Ok(found),
        }
    }

    /// Keeps flows that were read.
    pub(crate) fn keep(&self, read: Vec<StoredFlow>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known
            .extend(read.into_iter().map(|stored| ((stored.flow.name.clone(), stored.flow.version), stored)));
    }
}

/// A flow from its row.
pub(crate) fn stored_flow(
    name: &str,
    version: i64,
    created_at: i64,
    data: &[u8],
) -> Result<StoredFlow, StoreError> {
    let damaged = |what: &str| StoreError::Damaged(format!("flow {name} version {version} {what}"));
    let flow = stored::read_flow(data).map_err(|error| damaged(&error.to_string()))?;
    if flow.name.as_str() != name || flow.version != small(version) {
        return Err(damaged("is not what its row says"));
    }
    Ok(StoredFlow { flow: flow.into(), created_at: Timestamp(created_at) })
}
