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

/// Where wall time begins.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// As in the program: a followed clock that is ahead by more was set, and one that is behind by more is not followed.
const JUMP: Millis = Millis(1000);

/// By how many milliseconds a clock is wrong.
pub(crate) type Wrong = Arc<AtomicI64>;

/// The clock of a database, as its connections read it. It runs backwards when somebody sets it back.
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

/// The clock of a machine. Its wall time never runs backwards, as in the program.
pub(crate) struct MachineClock {
    wrong: Wrong,
    started_at: u64,
    latest: Cell<i64>,
    /// What time it was by the clock that this one follows when the world began.
    origin: Cell<Option<i64>>,
}

impl MachineClock {
    /// A clock started now on a machine whose time is wrong by so much; it is not behind `floor`.
    pub(crate) fn start(world: &World, wrong: Wrong, floor: Timestamp) -> Self {
        Self { wrong, started_at: world.now(), latest: Cell::new(floor.0), origin: Cell::new(None) }
    }

    /// Tells the clock of a time that was written before.
    pub(crate) fn not_before(&self, floor: Timestamp) {
        self.latest.set(self.latest.get().max(floor.0));
    }

    /// The time that it will be when this time of the database is followed, if that is a jump ahead.
    pub(crate) fn jump_to(&self, time: Timestamp, world: &World) -> Option<Now> {
        (time > self.now(world).wall + JUMP).then(|| shared(time.0))
    }

    /// It was this time by the clock of the database `ago` milliseconds before now.
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

/// Servers that follow a clock go by it for leases as well.
fn shared(time: i64) -> Now {
    Now { wall: Timestamp(time), mono: Millis(u64::try_from(time).unwrap_or(0)) }
}
