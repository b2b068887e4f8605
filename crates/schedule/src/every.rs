//! Intervals: their length is elapsed time, whatever clocks on walls show.

use windlass_core::{Instants, Millis, Timestamp};

/// The instants `since + interval`, `since + 2 × interval` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every {
    /// The start; it is not an instant itself.
    pub since: Timestamp,
    /// The time between two instants; not 0.
    pub interval: Millis,
}

impl Every {
    /// The instant with this number, from 1.
    fn instant(&self, number: u64) -> Timestamp {
        self.since + Millis(self.interval.0.saturating_mul(number))
    }

    /// The number of instants up to `time`.
    fn until(&self, time: Timestamp) -> u64 {
        (time - self.since).0 / self.interval.0.max(1)
    }
}

impl Instants for Every {
    fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        Some(self.instant(self.until(time) + 1))
    }

    fn last_until(&self, time: Timestamp) -> Option<Timestamp> {
        Some(self.until(time)).filter(|number| *number > 0).map(|number| self.instant(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_counted_from_its_start() {
        let every = Every { since: Timestamp(1_000), interval: Millis(300) };
        assert_eq!(every.next_after(Timestamp(0)), Some(Timestamp(1_300)));
        assert_eq!(every.next_after(Timestamp(1_299)), Some(Timestamp(1_300)));
        assert_eq!(every.next_after(Timestamp(1_300)), Some(Timestamp(1_600)));
        assert_eq!(every.last_until(Timestamp(1_299)), None);
        assert_eq!(every.last_until(Timestamp(1_300)), Some(Timestamp(1_300)));
        assert_eq!(every.last_until(Timestamp(1_899)), Some(Timestamp(1_600)));
    }
}
