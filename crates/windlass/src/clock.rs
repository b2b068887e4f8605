//! The clock of the process: the only place that reads the machine's time.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::ensure;
use windlass_core::{Millis, Timestamp};
use windlass_engine::loops::{StoreClock, Timer};
use windlass_store::{Clock, Now};

/// The machine's clocks. The wall time never runs backwards, even over restarts. If the machine's date is set
/// back, the wall time continues from where it was, a little slower, until the date has caught up ([`Wall`]).
///
/// When several servers share a store, each [follows](Self::follow) the store's clock, also for leases. It
/// then uses the machine's clock only to measure the time since it last read the store's.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: Instant,
    /// The wall time, used while no store's clock is followed.
    wall: Mutex<Wall>,
    /// The latest time that was written before this start.
    floor: AtomicI64,
    /// The latest time of the store's clock that was returned.
    latest: AtomicI64,
    /// The time of the store's clock at the start of this process.
    origin: AtomicI64,
}

/// The clock of no store is followed.
const NO_ORIGIN: i64 = i64::MIN;

/// A store's clock that is ahead by more has been set: time jumps. A clock that is behind by more is not
/// followed back.
const JUMP: Millis = Millis(1000);

/// A date later than all known times by more than this is wrong, unless nobody has run the program for that
/// long.
const AHEAD_MAX: Millis = Millis::from_secs(2 * 366 * 24 * 3600);

/// Wall time that continues while the machine's date is behind it, so that delayed work never runs too early.
/// Both times are in microseconds.
#[derive(Debug, Default)]
struct Wall {
    time: i64,
    /// The monotonic time of the last reading.
    told_at: i64,
}

impl Wall {
    /// While the date is behind, time runs slower by one part in this many, so that the date catches up.
    const CATCH_UP: i64 = 20;

    /// The time for this date and this monotonic time.
    fn at(&mut self, date: i64, mono: i64) -> i64 {
        let passed = (mono - self.told_at).max(0);
        self.told_at = self.told_at.max(mono);
        self.time = date.max(self.time.saturating_add(passed - passed / Self::CATCH_UP));
        self.time
    }
}

impl SystemClock {
    /// A clock that is never behind `floor`.
    pub(crate) fn new(floor: Timestamp) -> Self {
        let clock = Self {
            started: Instant::now(),
            wall: Mutex::default(),
            floor: AtomicI64::new(0),
            latest: AtomicI64::new(0),
            origin: AtomicI64::new(NO_ORIGIN),
        };
        clock.not_before(floor);
        clock
    }

    /// Keeps the clock from going behind a time that was written before.
    pub(crate) fn not_before(&self, floor: Timestamp) {
        self.floor.fetch_max(floor.0, Ordering::Relaxed);
        self.latest.fetch_max(floor.0, Ordering::Relaxed);
        let mut wall = self.wall();
        wall.time = wall.time.max(floor.0.saturating_mul(1000));
    }

    /// How far this clock is ahead of the machine's date, because that was set back.
    pub(crate) fn ahead(&self) -> Millis {
        if self.origin.load(Ordering::Relaxed) != NO_ORIGIN {
            return Millis(0);
        }
        let wall = self.now().wall;
        Millis(u64::try_from(wall.0 - date() / 1000).unwrap_or(0))
    }

    /// Refuses a date of the machine that cannot be right: all work would be due at once, and the written
    /// times could not be corrected. `built` is the time when this program was installed, as far as it is
    /// known.
    ///
    /// # Errors
    /// When the date is years after both; the message contains the fix.
    pub(crate) fn check_date(&self, built: Timestamp) -> anyhow::Result<()> {
        if self.origin.load(Ordering::Relaxed) != NO_ORIGIN {
            return Ok(());
        }
        self.check(Timestamp(date() / 1000), built)
    }

    fn check(&self, date: Timestamp, built: Timestamp) -> anyhow::Result<()> {
        let known = self.floor.load(Ordering::Relaxed).max(built.0);
        let day = |time: i64| {
            jiff::Timestamp::from_millisecond(time).map_or_else(
                |_| "a date beyond the year 9999".to_owned(),
                |time| time.strftime("%F").to_string(),
            )
        };
        ensure!(
            date <= Timestamp(known) + AHEAD_MAX,
            "the clock of this machine is wrong: it shows {}, more than two years after this program was installed and after \
             the newest change in the store ({}). Set the clock, or start with --trust-clock if it is right",
            day(date.0),
            day(known)
        );
        Ok(())
    }

    fn wall(&self) -> MutexGuard<'_, Wall> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn machine_time(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// With a shared store both times are those of the store's clock, so that they mean the same on all servers.
fn shared(time: i64) -> Now {
    Now { wall: Timestamp(time), mono: Millis(u64::try_from(time).unwrap_or(0)) }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let origin = self.origin.load(Ordering::Relaxed);
        if origin != NO_ORIGIN {
            let time = origin + self.machine_time();
            return shared(self.latest.fetch_max(time, Ordering::Relaxed).max(time));
        }
        let mono = micros(self.started.elapsed());
        let wall = self.wall().at(date(), mono);
        Now { wall: Timestamp(wall / 1000), mono: Millis(u64::try_from(mono / 1000).unwrap_or(0)) }
    }
}

impl Timer for SystemClock {
    async fn sleep(&self, pause: Millis) {
        tokio::time::sleep(Duration::from_millis(pause.0)).await;
    }
}

impl StoreClock for SystemClock {
    fn elapsed(&self) -> Millis {
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn jump_to(&self, time: Timestamp) -> Option<Now> {
        (time > self.now().wall + JUMP).then(|| shared(time.0))
    }

    /// Small steps back are bridged: time stands still until the store's clock catches up. Large ones are
    /// ignored.
    fn follow(&self, time: Timestamp, ago: Millis) {
        let origin = time.0.saturating_add_unsigned(ago.0).saturating_sub(self.machine_time());
        let before = self.origin.load(Ordering::Relaxed);
        let is_far_behind = before != NO_ORIGIN && origin < before.saturating_sub_unsigned(JUMP.0);
        if !is_far_behind {
            self.origin.store(origin, Ordering::Relaxed);
        }
    }
}

/// The machine's date in microseconds.
fn date() -> i64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// When this program was installed; 0 if unknown.
pub(crate) fn built_at() -> Timestamp {
    let modified = std::env::current_exe().and_then(|path| path.metadata()).and_then(|file| file.modified());
    let since = modified.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Timestamp(since.map_or(0, |since| micros(since) / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;

    #[test]
    fn time_goes_on_when_the_date_is_set_back() {
        let (mut wall, start) = (Wall::default(), 1000 * HOUR);
        assert_eq!(wall.at(start, 0), start);
        // An hour ahead, and back again.
        assert_eq!(wall.at(start + HOUR, SECOND), start + HOUR);
        let first = wall.at(start + 2 * SECOND, 2 * SECOND);
        assert_eq!(first, start + HOUR + SECOND - SECOND / 20, "a second has passed");
        // Work that is due in ten seconds is due in little more than ten seconds.
        assert!(wall.at(start + 13 * SECOND, 13 * SECOND) >= first + 10 * SECOND);
        // The date catches up, and time is exact again.
        let later = 25 * HOUR;
        assert_eq!(wall.at(start + later, later), start + later);
        assert_eq!(wall.at(start + later - 5, later - 5), start + later, "who asked first may come last");
    }

    #[test]
    fn time_goes_on_from_what_was_written_before_a_restart() {
        let (clock, now) = (SystemClock::new(Timestamp(0)), date() / 1000);
        assert_eq!(clock.ahead(), Millis(0));
        clock.not_before(Timestamp(now + 3_600_000));
        let (first, ahead) = (clock.now(), clock.ahead());
        assert!(first.wall.0 >= now + 3_600_000);
        assert!((3_500_000..=3_600_000).contains(&ahead.0), "{ahead}");
        while clock.now().wall == first.wall {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_date_that_cannot_be_true_is_refused() {
        const YEAR: i64 = 365 * 24 * 3_600_000;
        let (written, built) = (Timestamp(50 * YEAR), Timestamp(54 * YEAR));
        let clock = SystemClock::new(written);
        for good in [0, 49 * YEAR, 55 * YEAR, 56 * YEAR] {
            clock.check(Timestamp(good), built).unwrap();
        }
        let refused = clock.check(Timestamp(57 * YEAR), built).unwrap_err().to_string();
        assert!(refused.contains("shows 2026-12-18") && refused.contains("(2023-12-19)"), "{refused}");
        SystemClock::new(Timestamp(56 * YEAR)).check(Timestamp(57 * YEAR), built).unwrap();
        assert!(clock.check(Timestamp(i64::MAX / 2), built).is_err());
    }

    #[test]
    fn a_store_s_clock_is_followed_and_never_back() {
        let clock = SystemClock::new(Timestamp(0));
        let time = Timestamp(5_000_000_000_000);
        clock.follow(time, Millis(0));
        let first = clock.now();
        assert!(first.wall >= time && first.mono.0 == u64::try_from(first.wall.0).unwrap());
        // An hour back is ignored.
        clock.follow(Timestamp(time.0 - 3_600_000), Millis(0));
        let second = clock.now();
        assert!(second.wall >= first.wall && second.wall < time + Millis(600_000));
        // A small step back is bridged.
        clock.follow(Timestamp(second.wall.0 - 500), Millis(0));
        assert!(clock.now().wall >= second.wall);
        assert!(clock.now().wall < second.wall + Millis(400));
        assert_eq!(clock.jump_to(second.wall), None);
        let ahead = second.wall + Millis(3_600_000);
        let jump = clock.jump_to(ahead).unwrap();
        assert_eq!((jump.wall, jump.mono.0), (ahead, u64::try_from(ahead.0).unwrap()));
        clock.follow(ahead, Millis(0));
        assert!(clock.now().wall >= ahead);
    }
}
