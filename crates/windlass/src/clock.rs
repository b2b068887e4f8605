//! The clock of the process: the only place that asks the machine what time it is.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use windlass_core::{Millis, Timestamp};
use windlass_engine::ports::{Clock, Now};

/// The machine's clocks; its wall time never runs backwards, also over restarts.
///
/// Of several servers on one store each [follows](Self::follow) the store's clock, for leases as well: the machine's
/// own says then only how much time has passed since.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: Instant,
    /// The latest wall time told, or known to be written before this start.
    latest: AtomicI64,
    /// What time it was by the store's clock when this process started.
    origin: AtomicI64,
}

/// There is no store whose clock is followed.
const NO_ORIGIN: i64 = i64::MIN;

/// A store's clock that is ahead by more has been set: time jumps. One that is behind by more is not followed back.
const JUMP: Millis = Millis(1000);

impl SystemClock {
    /// A clock that is not behind `floor`.
    pub(crate) fn new(floor: Timestamp) -> Self {
        Self { started: Instant::now(), latest: AtomicI64::new(floor.0), origin: AtomicI64::new(NO_ORIGIN) }
    }

    /// Tells the clock of a time that was written before.
    pub(crate) fn not_before(&self, floor: Timestamp) {
        self.latest.fetch_max(floor.0, Ordering::Relaxed);
    }

    /// It was this time by the store's clock so long ago. Small steps back are waited out, large ones are not made.
    pub(crate) fn follow(&self, time: Timestamp, ago: Duration) {
        let ago = i64::try_from(ago.as_millis()).unwrap_or(0);
        let origin = time.0.saturating_add(ago).saturating_sub(self.elapsed());
        let before = self.origin.load(Ordering::Relaxed);
        let is_far_behind = before != NO_ORIGIN && origin < before.saturating_sub_unsigned(JUMP.0);
        if !is_far_behind {
            self.origin.store(origin, Ordering::Relaxed);
        }
    }

    /// The time that it will be when this time of the store's clock is followed, if that is a jump.
    pub(crate) fn jump_to(&self, time: Timestamp) -> Option<Now> {
        (time > self.now().wall + JUMP).then(|| shared(time.0))
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// Of servers that share a store both times are those of its clock, so that they mean the same to all.
fn shared(time: i64) -> Now {
    Now { wall: Timestamp(time), mono: Millis(u64::try_from(time).unwrap_or(0)) }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let origin = self.origin.load(Ordering::Relaxed);
        if origin != NO_ORIGIN {
            let time = origin + self.elapsed();
            return shared(self.latest.fetch_max(time, Ordering::Relaxed).max(time));
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let wall = i64::try_from(wall).unwrap_or(i64::MAX);
        let latest = self.latest.fetch_max(wall, Ordering::Relaxed).max(wall);
        let mono = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { wall: Timestamp(latest), mono: Millis(mono) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_s_clock_is_followed_and_never_back() {
        let clock = SystemClock::new(Timestamp(0));
        let time = Timestamp(5_000_000_000_000);
        clock.follow(time, Duration::ZERO);
        let first = clock.now();
        assert!(first.wall >= time && first.mono.0 == u64::try_from(first.wall.0).unwrap());
        // An hour back is no time that anybody may go by.
        clock.follow(Timestamp(time.0 - 3_600_000), Duration::ZERO);
        let second = clock.now();
        assert!(second.wall >= first.wall && second.wall < time + Millis(600_000));
        // A little back is waited out.
        clock.follow(Timestamp(second.wall.0 - 500), Duration::ZERO);
        assert!(clock.now().wall >= second.wall);
        assert!(clock.now().wall < second.wall + Millis(400));
        assert_eq!(clock.jump_to(second.wall), None);
        let ahead = second.wall + Millis(3_600_000);
        let jump = clock.jump_to(ahead).unwrap();
        assert_eq!((jump.wall, jump.mono.0), (ahead, u64::try_from(ahead.0).unwrap()));
        clock.follow(ahead, Duration::ZERO);
        assert!(clock.now().wall >= ahead);
    }
}
