//! Flows: a version never changes, so it is read once; which version is the newest is asked each time.

use mysql_async::Row;
use windlass_core::Name;
use windlass_engine::{is_adhoc, ports::StoredFlow};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    script::{Cell, Script, cells},
};
use crate::rows::{FlowCache, small, stored_flow};

/// The flows, as far as they were read.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) cache: FlowCache,
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
        let read = sets.iter().flatten().map(read_flow).collect::<Result<Vec<_>, _>>()?;
        self.cache.keep(read);
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
        Ok(self.cache.get(name, found))
    }

    /// All flows in their newest versions, by name.
    pub(super) async fn all(&self, connection: &mut Connection<'_>) -> Result<Vec<StoredFlow>, Fault> {
        let mut script = Script::default();
        script.add("SELECT name, max(version) FROM windlass_flow GROUP BY name ORDER BY name", []);
        let sets = connection.run(script).await?;
        let keys = sets.iter().flatten().map(|row| Ok((row.name(0)?, small(row.number(1)?))));
        let keys = keys.collect::<Result<Vec<_>, Fault>>()?;
        self.read(connection, keys.iter().cloned(), false).await?;
        Ok(self.cache.get_all(&keys))
    }
}

fn read_flow(row: &Row) -> Result<StoredFlow, Fault> {
    Ok(stored_flow(row.text(0)?, row.number(1)?, row.number(2)?, row.bytes(3)?)?)
}
