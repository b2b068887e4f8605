//! Flows: a version never changes, so it is read once; which version is the newest is asked each time.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use tokio_postgres::Row;
use windlass_core::{Flow, Name, TaskId, Timestamp};
use windlass_engine::{
    ports::{StoreError, StoredFlow},
    stored,
};

use super::{connection::Connection, error::Fault};
use crate::rows::{name, small};

const READ: &str = "SELECT f.name, f.version, f.created_at, f.data
    FROM unnest($1::text[], $2::int8[]) AS k (name, version)
    JOIN windlass_flow f ON f.name = k.name AND f.version = k.version";
const NEWEST: &str = "SELECT f.name, f.version FROM unnest($1::text[]) AS k (name)
    CROSS JOIN LATERAL (
        SELECT name, version FROM windlass_flow WHERE name = k.name ORDER BY version DESC LIMIT 1
    ) f";
const ALL: &str = "SELECT name, max(version) FROM windlass_flow GROUP BY name ORDER BY name";

/// The flows that were read.
#[derive(Debug, Default)]
pub(super) struct Flows {
    known: RwLock<HashMap<(Name, u32), StoredFlow>>,
}

impl Flows {
    /// A flow that was read before.
    pub(super) fn known(&self, name: &Name, version: u32) -> Option<StoredFlow> {
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

    /// Reads those of these flows that are not known yet.
    pub(super) async fn read(
        &self,
        connection: &mut Connection<'_>,
        wanted: impl Iterator<Item = (Name, u32)>,
    ) -> Result<(), Fault> {
        let unknown: BTreeSet<(Name, u32)> = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            wanted.filter(|key| !known.contains_key(key)).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = unknown.iter().map(|(name, _)| name.as_str()).collect();
        let versions: Vec<i64> = unknown.iter().map(|(_, version)| i64::from(*version)).collect();
        let rows = connection.query(READ, &[&names, &versions]).await?;
        let read = rows.iter().map(stored_flow).collect::<Result<Vec<_>, _>>()?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known
            .extend(read.into_iter().map(|stored| ((stored.flow.name.clone(), stored.flow.version), stored)));
        Ok(())
    }

    /// The newest versions of the flows with these names.
    pub(super) async fn newest(
        &self,
        connection: &mut Connection<'_>,
        names: &BTreeSet<Name>,
    ) -> Result<HashMap<Name, StoredFlow>, Fault> {
        let keys: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let rows = connection.query(NEWEST, &[&keys]).await?;
        let found = self.all_of(connection, &rows).await?;
        Ok(found.into_iter().map(|stored| (stored.flow.name.clone(), stored)).collect())
    }

    /// All flows in their newest versions, by name.
    pub(super) async fn all(&self, connection: &mut Connection<'_>) -> Result<Vec<StoredFlow>, Fault> {
        let rows = connection.query(ALL, &[]).await?;
        self.all_of(connection, &rows).await
    }

    async fn all_of(&self, connection: &mut Connection<'_>, rows: &[Row]) -> Result<Vec<StoredFlow>, Fault> {
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            keys.push((name(row.try_get(0)?)?, small(row.try_get(1)?)));
        }
        self.read(connection, keys.iter().cloned()).await?;
        Ok(keys.iter().filter_map(|(name, version)| self.known(name, *version)).collect())
    }
}

fn stored_flow(row: &Row) -> Result<StoredFlow, Fault> {
    let (name, version): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
    let damaged = |what: &str| StoreError::Damaged(format!("flow {name} version {version} {what}"));
    let flow = stored::read_flow(row.try_get(3)?).map_err(|error| damaged(&error.to_string()))?;
    if flow.name.as_str() != name || flow.version != small(version) {
        return Err(damaged("is not what its row says").into());
    }
    Ok(StoredFlow { flow: flow.into(), created_at: Timestamp(row.try_get(2)?) })
}
