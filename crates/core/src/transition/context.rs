//! What the rules may know beside the task.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ActKey, Timestamp};

/// What the rules may know beside the task.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Now, by the store's clock.
    pub now: Timestamp,
    /// Acts whose current attempt a worker has claimed, with the time of the claim where it is known.
    pub held: BTreeMap<ActKey, Option<Timestamp>>,
    /// Those of them that nobody has begun: they wait on a broker for a worker that takes them.
    pub offered: BTreeSet<ActKey>,
    /// Claimed acts of modules that answer over a broker alone: the engine cannot ask whether they still run.
    pub afar: BTreeSet<ActKey>,
    /// Acts whose current attempt a worker may have had, now or before; it includes `held`.
    pub handed_out: BTreeSet<ActKey>,
}

impl Context {
    /// Nothing is with a worker.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }
}
