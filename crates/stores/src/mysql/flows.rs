//! Flows: a version never changes, so it is read once; which version is the newest is asked each time.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use mysql_async::Row;
use windlass_core::{Flow, Name, TaskId, Timestamp};
use windlass_engine::{
    is_adhoc,
    ports::{StoreError, StoredFlow},
    stored,
};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::{Fault, damaged},
    script::{Cell, Script, cells},
};
use crate::rows::small;

/// The flows that were read.
#[derive(Debug, Default)]
pub(super) struct Flows {
    known: RwLock<HashMap<(Name, u32), StoredFlow>>,
}

impl Flows {
    /// A flow that was read before.
    fn known(&self, name: &Name, version: u32) -> Option<StoredFlow> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(name.clone(), version)).cloned()
    }

    /// The flow of a task.
    pub(super) fn of_task(&self, id: TaskId, name: &Name, version: u32) -> Result<Arc<Flow>, StoreError> {
        let flow = self.known(name, version).map(|stored| stored.flow);
        flow.ok_or_else(|| {
            StoreError::Damaged(format!("task {id} is of flow {name} version {version}, which is not there"))
        })
    }

    /// Reads those of these flows that are not known yet. With `within` the connection has a transaction open.
    pub(super) async fn read(
        &self,
        connection: &mut Connection<'_>,
        wanted: impl Iterator<Item = (Name, u32)>,
        within: bool,
    ) -> Result<(), Fault> {
        let unknown: BTreeSet<(Name, u32)> = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            wanted.filter(|key| !known.contains_key(key)).collect()
        };
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
        let read = sets.iter().flatten().map(stored_flow).collect::<Result<Vec<_>, _>>()?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known
            .extend(read.into_iter().map(|stored| ((stored.flow.name.clone(), stored.flow.version), stored)));
        Ok(())
    }

    /// The flow with this name: that version, or the newest.
    pub(super) async fn one(
        &self,
        connection: &mut Connection<'_>,
        name: &Name,
        version: Option<u32>,
    ) -> Result<Option<StoredFlow>, Fault> {
        // One that came with tasks goes with the last of them, so it is looked whether it is there.
        let known = version.filter(|_| !is_adhoc(name.as_str()));
        let found = match known {
            Some(known) => Some(known),
            None => {
                let mut script = Script::default();
                script.add("SELECT max(version) FROM windlass_flow WHERE name = ?", cells![name]);
                let sets = connection.run(script).await?;
                let newest = sets.iter().flatten().next().map(|row| row.optional_number(0)).transpose()?;
                newest.flatten().map(small)
            }
        };
        let Some(found) = found.filter(|found| version.is_none_or(|version| version == *found)) else {
            return Ok(None);
        };
        self.read(connection, std::iter::once((name.clone(), found)), false).await?;
        Ok(self.known(name, found))
    }

    /// All flows in their newest versions, by name.
    pub(super) async fn all(&self, connection: &mut Connection<'_>) -> Result<Vec<StoredFlow>, Fault> {
        let mut script = Script::default();
        script.add("SELECT name, max(version) FROM windlass_flow GROUP BY name ORDER BY name", []);
        let sets = connection.run(script).await?;
        let keys = sets.iter().flatten().map(|row| Ok((row.name(0)?, small(row.number(1)?))));
        let keys = keys.collect::<Result<Vec<_>, Fault>>()?;
        self.read(connection, keys.iter().cloned(), false).await?;
        Ok(keys.iter().filter_map(|(name, version)| self.known(name, *version)).collect())
    }
}

fn stored_flow(row: &Row) -> Result<StoredFlow, Fault> {
    let (name, version) = (row.text(0)?, row.number(1)?);
    let of = |what: &str| damaged(format!("flow {name} version {version} {what}"));
    let flow = stored::read_flow(row.bytes(3)?).map_err(|error| of(&error.to_string()))?;
    if flow.name.as_str() != name || flow.version != small(version) {
        return Err(of("is not what its row says"));
    }
    Ok(StoredFlow { flow: flow.into(), created_at: Timestamp(row.number(2)?) })
}
