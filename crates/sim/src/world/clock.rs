//! The clocks of machines: each may be wrong, and may be set.

use std::{cell::Cell, rc::Rc};

use windlass_core::{Millis, Timestamp};
use windlass_engine::ports::Now;

use super::World;

/// Where wall time begins.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// The clock of a machine. The wall time it tells never runs backwards, as in the program.
pub(crate) struct MachineClock {
    /// How wrong it is, in milliseconds.
    wrong: Rc<Cell<i64>>,
    started_at: u64,
    latest: Cell<i64>,
}

impl MachineClock {
    /// A clock started now on a machine whose time is wrong by so much; it is not behind `floor`.
    pub(crate) fn start(world: &World, wrong: Rc<Cell<i64>>, floor: Timestamp) -> Self {
        Self { wrong, started_at: world.now(), latest: Cell::new(floor.0) }
    }

    /// Tells the clock of a time that was written before.
    pub(crate) fn not_before(&self, floor: Timestamp) {
        self.latest.set(self.latest.get().max(floor.0));
    }

    pub(crate) fn now(&self, world: &World) -> Now {
        let elapsed = i64::try_from(world.now()).unwrap_or(i64::MAX);
        let wall = BEGIN_MS + elapsed + self.wrong.get();
        self.latest.set(self.latest.get().max(wall));
        Now { wall: Timestamp(self.latest.get()), mono: Millis(world.now() - self.started_at) }
    }
}
