//! The clock of the process.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use windlass_core::{Millis, Timestamp};
use windlass_engine::ports::{Clock, Now};

/// The machine's clocks; its wall time never runs backwards, also over restarts.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: Instant,
    /// The latest wall time told, or known to be written before this start.
    latest: AtomicI64,
}

impl SystemClock {
    /// A clock that is not behind `floor`.
    pub(crate) fn new(floor: Timestamp) -> Self {
        Self { started: Instant::now(), latest: AtomicI64::new(floor.0) }
    }

    /// Tells the clock of a time that was written before.
    pub(crate) fn not_before(&self, floor: Timestamp) {
        self.latest.fetch_max(floor.0, Ordering::Relaxed);
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let wall = i64::try_from(wall).unwrap_or(i64::MAX);
        let latest = self.latest.fetch_max(wall, Ordering::Relaxed).max(wall);
        let mono = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { wall: Timestamp(latest), mono: Millis(mono) }
    }
}
