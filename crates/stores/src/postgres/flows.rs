//! Flows: a version never changes, so it is read once; which version is the newest is asked again and again.

use std::collections::{BTreeSet, HashMap};

use tokio_postgres::Row;
use windlass_core::Name;
use windlass_store::{DamagedTask, Quarantine, StoreError, StoredFlow};

use super::{
    connection::Connection,
    error::{Fault, sound},
};
use crate::rows::{FlowCache, name, small, stored_flow};

const READ: &str = "SELECT f.name, f.version, f.created_at, f.data
    FROM unnest($1::text[], $2::int8[]) AS k (name, version)
    JOIN windlass_flow f ON f.name = k.name AND f.version = k.version";
const NEWEST: &str = "SELECT f.name, f.version FROM unnest($1::text[]) AS k (name)
    CROSS JOIN LATERAL (
        SELECT name, version FROM windlass_flow WHERE name = k.name ORDER BY version DESC LIMIT 1
    ) f";
const ALL: &str = "SELECT name, max(version) FROM windlass_flow GROUP BY name ORDER BY name";

/// The flows, as far as they were read, and the tasks that could not be put together with them.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) cache: FlowCache,
    /// Tasks whose rows are damaged.
    pub(super) quarantine: Quarantine,
}

impl Flows {
    /// Reads those of these flows that are not known yet.
    pub(super) async fn read(
        &self,
        connection: &mut Connection<'_>,
        wanted: impl Iterator<Item = (Name, u32)>,
    ) -> Result<(), Fault> {
        let unknown = self.cache.unknown(wanted);
        if unknown.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = unknown.iter().map(|(name, _)| name.as_str()).collect();
        let versions: Vec<i64> = unknown.iter().map(|(_, version)| i64::from(*version)).collect();
        let rows = connection.query(READ, &[&names, &versions]).await?;
        let mut read = Vec::with_capacity(rows.len());
        for row in &rows {
            let (name, version): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
            let damaged = |fault: &StoreError| DamagedTask::flow(name, version, fault);
            read.extend(sound(&self.quarantine, read_flow(row), damaged)?);
        }
        self.cache.keep(read);
        Ok(())
    }

    /// A flow that was looked for; nothing = it is not there.
    pub(super) fn readable(&self, name: &Name, version: u32) -> Result<Option<StoredFlow>, StoreError> {
        self.cache.readable(&self.quarantine, name, version)
    }

    /// The newest versions of the flows with these names.
    pub(super) async fn newest(
        &self,
        connection: &mut Connection<'_>,
        names: &BTreeSet<Name>,
    ) -> Result<HashMap<Name, Result<StoredFlow, StoreError>>, Fault> {
        let keys: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let rows = connection.query(NEWEST, &[&keys]).await?;
        let keys = self.read_all(connection, &rows).await?;
        let readable = |(name, version)| {
            let found = self.readable(&name, version).transpose()?;
            Some((name, found))
        };
        Ok(keys.into_iter().filter_map(readable).collect())
    }

    /// All flows in their newest versions, by name.
    pub(super) async fn all(&self, connection: &mut Connection<'_>) -> Result<Vec<StoredFlow>, Fault> {
        let rows = connection.query(ALL, &[]).await?;
        let keys = self.read_all(connection, &rows).await?;
        Ok(self.cache.get_all(&keys))
    }

    /// Reads the flows with these names and versions, as far as they can be read.
    async fn read_all(
        &self,
        connection: &mut Connection<'_>,
        rows: &[Row],
    ) -> Result<Vec<(Name, u32)>, Fault> {
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            let (found, version): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
            let damaged = |fault: &StoreError| DamagedTask::flow(found, version, fault);
            keys.extend(
                self.quarantine.readable_row(name(found), damaged)?.map(|name| (name, small(version))),
            );
        }
        self.read(connection, keys.iter().cloned()).await?;
        Ok(keys)
    }
}

fn read_flow(row: &Row) -> Result<StoredFlow, Fault> {
    Ok(stored_flow(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)?)
}
