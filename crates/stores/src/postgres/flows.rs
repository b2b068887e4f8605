//! Reads flows.

use std::collections::BTreeSet;

use windlass_core::Name;

use super::connection::{Batch, Connection, parameters};
use crate::rows::flows::FlowSql;

const READ: &str = "SELECT f.name, f.version, f.created_at, f.data
    FROM unnest($1::text[], $2::int8[]) AS k (name, version)
    JOIN windlass_flow f ON f.name = k.name AND f.version = k.version";
const NEWEST: &str = "SELECT f.name, f.version FROM unnest($1::text[]) AS k (name)
    CROSS JOIN LATERAL (
        SELECT name, version FROM windlass_flow WHERE name = k.name ORDER BY version DESC LIMIT 1
    ) f";
const ALL: &str = "SELECT name, max(version) FROM windlass_flow GROUP BY name ORDER BY name";

impl FlowSql for Connection {
    fn flows(keys: &BTreeSet<(Name, u32)>) -> Batch<'_> {
        let names: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
        let versions: Vec<i64> = keys.iter().map(|(_, version)| i64::from(*version)).collect();
        Batch::one(READ, parameters![names, versions])
    }

    fn newest(names: &BTreeSet<Name>) -> Batch<'_> {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        Batch::one(NEWEST, parameters![names])
    }

    fn newest_of_all() -> Batch<'static> {
        Batch::one(ALL, Vec::new())
    }
}
