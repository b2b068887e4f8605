//! Reads flows.

use std::collections::BTreeSet;

use windlass_core::Name;

use super::{
    connection::Connection,
    script::{Cell, Script},
};
use crate::rows::flows::FlowSql;

impl FlowSql for Connection {
    fn flows(keys: &BTreeSet<(Name, u32)>) -> Script {
        let mut script = Script::default();
        script.for_pairs(
            "SELECT name, version, created_at, data FROM windlass_flow WHERE",
            ("name", "version"),
            keys.iter().map(|(name, version)| (Cell::from(name), Cell::from(*version))),
            "",
        );
        script
    }

    fn newest(names: &BTreeSet<Name>) -> Script {
        let mut script = Script::default();
        let keys = names.iter().map(Cell::from);
        script.for_keys("SELECT name, max(version) FROM windlass_flow WHERE name", keys, "GROUP BY name");
        script
    }

    fn newest_of_all() -> Script {
        Script::one("SELECT name, max(version) FROM windlass_flow GROUP BY name ORDER BY name", [])
    }
}
