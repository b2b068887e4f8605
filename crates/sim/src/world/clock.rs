//! The clocks of machines and databases: each may be wrong, and may be set.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use windlass_core::{Millis, Timestamp};
use windlass_store::Now;

use super::World;

/// The start of wall time.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// Like the program: a followed clock that is ahead by more was set; one that is behind by more is not
/// followed.
const JUMP: Millis = Millis(1000);

/// The error of a clock in milliseconds.
pub(crate) type Wrong = Arc<AtomicI64>;

/// The clock of a database, as its connections read it. It runs backwards when it is set back.
#[derive(Clone)]
pub(crate) struct DatabaseClock {
    /// Milliseconds since the world began.
    pub(crate) elapsed: Arc<AtomicU64>,
    pub(crate) wrong: Wrong,
}

impl DatabaseClock {
    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.elapsed.load(Relaxed)).unwrap_or(i64::MAX);
        Timestamp(BEGIN_MS + elapsed + self.wrong.load(Relaxed))
    }
}

/// The clock of a machine. Like in the program, its wall time never runs backwards.
pub(crate) struct MachineClock {
    wrong: Wrong,
    started_at: u64,
    latest: Cell<i64>,
    /// The time of the followed clock at the start of the world.
    origin: Cell<Option<i64>>,
}

impl MachineClock {
    /// Starts a clock on a machine whose time is wrong by this much; it is not behind `floor`.
    pub(crate) fn start(world: &World, wrong: Wrong, floor: Timestamp) -> Self {
        Self { wrong, started_at: world.now(), latest: Cell::new(floor.0), origin: Cell::new(None) }
    }

    /// Keeps the clock from going behind a time that was written before.
    pub(crate) fn not_before(&self, floor: Timestamp) {
        self.latest.set(self.latest.get().max(floor.0));
    }

    /// The time after following this time of the database, if that is a jump ahead.
    pub(crate) fn jump_to(&self, time: Timestamp, world: &World) -> Option<Now> {
        (time > self.now(world).wall + JUMP).then(|| shared(time.0))
    }

    /// The clock of the database had this time `ago` milliseconds before now.
    pub(crate) fn follow(&self, time: Timestamp, ago: u64, world: &World) {
        let elapsed = i64::try_from(world.now() - ago).unwrap_or(i64::MAX);
        let origin = time.0.saturating_sub(elapsed);
        let is_far_behind =
            self.origin.get().is_some_and(|before| origin < before.saturating_sub_unsigned(JUMP.0));
        if !is_far_behind {
            self.origin.set(Some(origin));
        }
    }

    pub(crate) fn now(&self, world: &World) -> Now {
        let elapsed = i64::try_from(world.now()).unwrap_or(i64::MAX);
        let begin = self.origin.get().unwrap_or_else(|| BEGIN_MS + self.wrong.load(Relaxed));
        self.latest.set(self.latest.get().max(begin + elapsed));
        match self.origin.get() {
            Some(_) => shared(self.latest.get()),
            None => Now { wall: Timestamp(self.latest.get()), mono: Millis(world.now() - self.started_at) },
        }
    }
}

/// Servers that follow a clock use it for leases too.
fn shared(time: i64) -> Now {
    Now { wall: Timestamp(time), mono: Millis(u64::try_from(time).unwrap_or(0)) }
}

impl World {
    /// The milliseconds since the world began, for clocks that outlast a call.
    pub(crate) fn elapsed(&self) -> Arc<AtomicU64> {
        self.now.clone()
    }
}
