//! Two servers on one store.

mod leading;
mod leases;
mod outages;
mod servers;

use std::sync::Arc;

use windlass_engine::services::HEARTBEAT_EVERY;
use windlass_store::memory::SharedStore;

use crate::world::World;

/// Two servers on one store; the first one leads every service.
pub(crate) struct Two {
    pub(crate) store: SharedStore,
    pub(crate) one: World,
    pub(crate) other: World,
}

impl Two {
    pub(crate) fn new() -> Self {
        let store = SharedStore::new([7; 32]);
        let (one, other) = (Arc::new(store.clone()), Arc::new(store.clone()));
        let two = Self { store, one: World::over(one, 1), other: World::over(other, 2) };
        two.be_heard();
        two
    }

    pub(crate) fn be_heard(&self) {
        self.one.be_heard();
        self.other.be_heard();
    }

    /// Time passes, with both at work.
    pub(crate) fn pass(&self, ms: i64) {
        const STEP_MS: i64 = 50;
        for at in 1..=ms / STEP_MS {
            self.one.pass(STEP_MS);
            self.other.pass(STEP_MS);
            if (at * STEP_MS) % i64::try_from(HEARTBEAT_EVERY.0).unwrap() == 0 {
                self.be_heard();
            }
        }
    }
}
