//! Flows: a version never changes, so it is read once; which version is the newest is asked again and again.

use std::collections::{BTreeSet, HashMap};

use mysql_async::Row;
use windlass_core::Name;
use windlass_store::{DamagedTask, Quarantine, StoreError, StoredFlow};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::{Fault, sound},
    script::{Cell, Script},
};
use crate::rows::{FlowCache, small, stored_flow};

/// The flows, as far as they were read, and the tasks that could not be put together with them.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) cache: FlowCache,
    /// Tasks whose rows are damaged.
    pub(super) quarantine: Quarantine,
}

impl Flows {
    /// Reads those of these flows that are not known yet. With `within` the connection has a transaction open.
    pub(super) async fn read(
        &self,
        connection: &mut Connection<'_>,
        wanted: impl Iterator<Item = (Name, u32)>,
        within: bool,
    ) -> Result<(), Fault> {
        let unknown = self.cache.unknown(wanted);
        if unknown.is_empty() {
            return Ok(());
        }
        let mut script = Script::default();
        script.for_pairs(
            "SELECT name, version, created_at, data FROM windlass_flow WHERE",
            ("name", "version"),
            unknown.iter().map(|(name, version)| (Cell::from(name), Cell::from(*version))),
            "",
        );
        let sets = if within { connection.send(script).await? } else { connection.run(script).await? };
        let mut read = Vec::new();
        for row in sets.iter().flatten() {
            let (name, version) = (row.any_text(0), row.number(1)?);
            let damaged = |fault: &StoreError| DamagedTask::flow(&name, version, fault);
            read.extend(sound(&self.quarantine, read_flow(row), damaged)?);
        }
        self.cache.keep(read);
        Ok(())
    }

    /// A version of a flow.
    pub(super) async fn one(
        &self,
        connection: &mut Connection<'_>,
        name: &Name,
        version: u32,
    ) -> Result<Option<StoredFlow>, Fault> {
        self.read(connection, std::iter::once((name.clone(), version)), false).await?;
        Ok(self.cache.readable(&self.quarantine, name, version)?)
    }

    /// The newest versions of the flows with these names.
    pub(super) async fn newest(
        &self,
        connection: &mut Connection<'_>,
        names: &BTreeSet<Name>,
    ) -> Result<HashMap<Name, Result<StoredFlow, StoreError>>, Fault> {
        let mut script = Script::default();
        let keys = names.iter().map(Cell::from);
        script.for_keys("SELECT name, max(version) FROM windlass_flow WHERE name", keys, "GROUP BY name");
        let keys = self.read_all(connection, script).await?;
        let readable = |(name, version)| {
            let found = self.cache.readable(&self.quarantine, &name, version).transpose()?;
            Some((name, found))
        };
        Ok(keys.into_iter().filter_map(readable).collect())
    }

    /// All flows in their newest versions, by name.
    pub(super) async fn all(&self, connection: &mut Connection<'_>) -> Result<Vec<StoredFlow>, Fault> {
        let mut script = Script::default();
        script.add("SELECT name, max(version) FROM windlass_flow GROUP BY name ORDER BY name", []);
        let keys = self.read_all(connection, script).await?;
        Ok(self.cache.get_all(&keys))
    }

    /// Reads the flows with these names and versions, as far as they can be read.
    async fn read_all(
        &self,
        connection: &mut Connection<'_>,
        script: Script,
    ) -> Result<Vec<(Name, u32)>, Fault> {
        let sets = connection.run(script).await?;
        let mut keys = Vec::new();
        for row in sets.iter().flatten() {
            let version = small(row.number(1)?);
            let damaged = |fault: &StoreError| DamagedTask::flow(&row.any_text(0), version, fault);
            keys.extend(sound(&self.quarantine, row.name(0), damaged)?.map(|name| (name, version)));
        }
        self.read(connection, keys.iter().cloned(), false).await?;
        Ok(keys)
    }
}

fn read_flow(row: &Row) -> Result<StoredFlow, Fault> {
    Ok(stored_flow(row.text(0)?, row.number(1)?, row.number(2)?, row.bytes(3)?)?)
}
