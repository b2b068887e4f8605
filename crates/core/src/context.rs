//! What the rules may know beside the task.

use std::collections::BTreeSet;

use crate::{ActKey, Timestamp};

/// What the rules may know beside the task.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Now, by the store's clock.
    pub now: Timestamp,
    /// Acts whose current attempt a worker has.
    pub held: BTreeSet<ActKey>,
    /// Those of them that nobody has begun: they wait on a broker for a worker that takes them.
    pub offered: BTreeSet<ActKey>,
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
