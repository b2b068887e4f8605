//! Facts besides the task that the rules may use.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ActKey, Timestamp};

/// Facts besides the task that the rules may use.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Now, by the store's clock.
    pub now: Timestamp,
    /// Executions whose current attempt a worker has claimed, with the time of the claim if known.
    pub held: BTreeMap<ActKey, Option<Timestamp>>,
    /// The claimed ones that no worker has started: they wait on a broker.
    pub offered: BTreeSet<ActKey>,
    /// Claimed executions of modules that report over a broker only: the engine cannot check whether they still run.
    pub afar: BTreeSet<ActKey>,
    /// Executions whose current attempt a worker may have had, now or before; includes `held`.
    pub handed_out: BTreeSet<ActKey>,
}

impl Context {
    /// A context without claims.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }
}
