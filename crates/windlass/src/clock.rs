//! The clock of the process.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use windlass_core::{Millis, Timestamp};
use windlass_engine::ports::{Clock, Now};

/// The machine's clocks; its wall time never runs backwards, also over restarts.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: Instant,
    /// What the monotonic time was when the process started: 0, or as all servers on a store count it.
    base: AtomicU64,
    /// How much the store's clock is ahead of the machine's.
    ahead: AtomicI64,
    /// The latest wall time told, or known to be written before this start.
    latest: AtomicI64,
}

impl SystemClock {
    /// A clock that is not behind `floor`.
    pub(crate) fn new(floor: Timestamp) -> Self {
        Self {
            started: Instant::now(),
            base: AtomicU64::new(0),
            ahead: AtomicI64::new(0),
            latest: AtomicI64::new(floor.0),
        }
    }

    /// Tells the clock of a time that was written before.
    pub(crate) fn not_before(&self, floor: Timestamp) {
        self.latest.fetch_max(floor.0, Ordering::Relaxed);
    }

    /// Goes by the clock of a store that other servers share, which said some time ago what time it was.
    pub(crate) fn follow(&self, store: Timestamp, ago: Duration) {
        let time = store.0.saturating_add(i64::try_from(ago.as_millis()).unwrap_or(0));
        self.ahead.store(time - wall(), Ordering::Relaxed);
        let base = u64::try_from(time).unwrap_or(0).saturating_sub(self.elapsed());
        // Set once: leases are to run evenly, whatever becomes of the wall clock.
        let _ = self.base.compare_exchange(0, base, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The machine's wall time.
fn wall() -> i64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(wall).unwrap_or(i64::MAX)
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = wall().saturating_add(self.ahead.load(Ordering::Relaxed));
        let latest = self.latest.fetch_max(wall, Ordering::Relaxed).max(wall);
        let mono = self.base.load(Ordering::Relaxed).saturating_add(self.elapsed());
        Now { wall: Timestamp(latest), mono: Millis(mono) }
    }
}
