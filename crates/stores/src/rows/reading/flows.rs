//! Flows of shared stores: a version never changes, so it is read once; the newest version is queried again and again.

use std::collections::{BTreeSet, HashMap};

use windlass_core::{Name, TaskId};
use windlass_store::{DamagedTask, Loaded, Quarantine, StoreError, StoredFlow};

use crate::rows::{Columns as _, Fault, FlowCache, Link, TaskParts, of_task, small, sound, stored_flow};

/// Statements that read flows.
pub(crate) trait FlowSql: Link {
    /// These versions: `name, version, created_at, data`.
    fn flows(keys: &BTreeSet<(Name, u32)>) -> Self::Script<'_>;

    /// The newest versions of these flows: `name, version`.
    fn newest(names: &BTreeSet<Name>) -> Self::Script<'_>;

    /// The newest versions of all flows, by name: `name, version`.
    fn newest_of_all() -> Self::Script<'static>;
}

/// The flows that were read so far, and the quarantine of the store.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    pub(crate) cache: FlowCache,
    /// Tasks and other rows that are damaged.
    pub(crate) quarantine: Quarantine,
}

impl Flows {
    /// Reads those of these flows that were not read before.
    pub(crate) async fn read<D: FlowSql>(
        &self,
        link: &mut D,
        wanted: impl Iterator<Item = (Name, u32)> + Send,
    ) -> Result<(), Fault> {
        let unknown = self.cache.unknown(wanted);
        if unknown.is_empty() {
            return Ok(());
        }
        let mut read = Vec::new();
        for row in link.rows(D::flows(&unknown)).await? {
            let (name, version) = (row.any_text(0), row.number(1)?);
            let damaged = |fault: &StoreError| DamagedTask::flow(&name, version, fault);
            read.extend(sound(&self.quarantine, flow_of(&row), damaged)?);
        }
        self.cache.keep(read);
        Ok(())
    }

    /// A version of a flow.
    pub(crate) async fn one<D: FlowSql>(
        &self,
        link: &mut D,
        name: &Name,
        version: u32,
    ) -> Result<Option<StoredFlow>, Fault> {
        self.read(link, std::iter::once((name.clone(), version))).await?;
        Ok(self.cache.readable(&self.quarantine, name, version)?)
    }

    /// The newest versions of the flows with these names.
    pub(crate) async fn newest<D: FlowSql>(
        &self,
        link: &mut D,
        names: &BTreeSet<Name>,
    ) -> Result<HashMap<Name, Result<StoredFlow, StoreError>>, Fault> {
        let keys = self.read_all(link, D::newest(names)).await?;
        let readable = |(name, version)| {
            let found = self.cache.readable(&self.quarantine, &name, version).transpose()?;
            Some((name, found))
        };
        Ok(keys.into_iter().filter_map(readable).collect())
    }

    /// All flows in their newest versions, by name.
    pub(crate) async fn all<D: FlowSql>(&self, link: &mut D) -> Result<Vec<StoredFlow>, Fault> {
        let keys = self.read_all(link, D::newest_of_all()).await?;
        Ok(self.cache.get_all(&keys))
    }

    /// Reads the flows that a script names, as far as they can be read.
    async fn read_all<D: FlowSql>(
        &self,
        link: &mut D,
        script: D::Script<'_>,
    ) -> Result<Vec<(Name, u32)>, Fault> {
        let mut keys = Vec::new();
        for row in link.rows(script).await? {
            let version = small(row.number(1)?);
            let damaged = |fault: &StoreError| DamagedTask::flow(&row.any_text(0), version, fault);
            keys.extend(sound(&self.quarantine, row.name(0), damaged)?.map(|name| (name, version)));
        }
        self.read(link, keys.iter().cloned()).await?;
        Ok(keys)
    }

    /// Puts tasks together with their flows; without those whose rows are damaged.
    pub(crate) async fn with_flows<D: FlowSql>(
        &self,
        link: &mut D,
        parts: Vec<TaskParts>,
    ) -> Result<Vec<Loaded>, Fault> {
        let wanted: BTreeSet<_> = parts.iter().map(|parts| (parts.flow.clone(), parts.version)).collect();
        self.read(link, wanted.into_iter()).await?;
        let mut loaded = Vec::with_capacity(parts.len());
        for parts in parts {
            let (id, flow) = (parts.id, self.cache.of_task(parts.id, &parts.flow, parts.version));
            loaded.extend(self.quarantine.readable(id, flow.and_then(|flow| parts.into_loaded(flow)))?);
        }
        Ok(loaded)
    }

    /// The columns of a task, or `None` where they are damaged.
    pub(crate) fn readable(
        &self,
        id: TaskId,
        read: Result<TaskParts, Fault>,
    ) -> Result<Option<TaskParts>, Fault> {
        match read {
            Ok(parts) => Ok(Some(parts)),
            Err(Fault::Store(error)) => Ok(self.quarantine.readable(id, Err(of_task(id, &error)))?),
            Err(fault) => Err(fault),
        }
    }
}

fn flow_of(row: &impl crate::rows::Columns) -> Result<StoredFlow, Fault> {
    Ok(stored_flow(row.text(0)?, row.number(1)?, row.number(2)?, row.bytes(3)?)?)
}
