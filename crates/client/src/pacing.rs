//! The delays between retries of a failed call.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The first delay, after the immediate retry.
const FIRST: Duration = Duration::from_millis(100);

/// The default of the longest delay.
const LONGEST: Duration = Duration::from_secs(1);

/// The growth of the delays, in percent. A restart takes about half a second: during this time the delays
/// stay short.
const GROWTH_PERCENT: u32 = 125;

/// Retries immediately, then after 100 ms, with delays that grow up to a maximum. Each delay is up to a
/// quarter shorter at random, so that the callers of a restarted server do not all come back at once. Never
/// gives up.
#[derive(Debug, Clone)]
pub struct Pacing {
    failures: u32,
    longest: Duration,
}

impl Default for Pacing {
    fn default() -> Self {
        Self::up_to(LONGEST)
    }
}

impl Pacing {
    /// Delays that grow up to this length.
    #[must_use]
    pub fn up_to(longest: Duration) -> Self {
        Self { failures: 0, longest }
    }

    /// Records a failure. Returns the delay before the next call.
    pub fn failed(&mut self) -> Duration {
        // The seed differs in every process and call, which is random enough here.
        let permille = u32::try_from(RandomState::new().hash_one(self.failures) % 1000).unwrap_or(0);
        self.failed_with(permille)
    }

    /// Records a success: the next failure counts as the first one.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    fn failed_with(&mut self, permille: u32) -> Duration {
        let failures_before = self.failures;
        self.failures = self.failures.saturating_add(1);
        if failures_before == 0 {
            return Duration::ZERO;
        }
        // From the 11th failure on the delay is the longest one anyway.
        let grown = (1..failures_before.min(12)).fold(FIRST, |delay, _| delay * GROWTH_PERCENT / 100);
        let delay = grown.min(self.longest);
        delay - delay / 4 * permille / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_is_at_once_and_the_others_grow_to_a_second() {
        let mut pacing = Pacing::default();
        let delays: Vec<u128> = (0..20).map(|_| pacing.failed_with(0).as_millis()).collect();
        assert_eq!(delays[..4], [0, 100, 125, 156]);
        assert!(delays.is_sorted());
        assert_eq!(delays[19], 1000);
        pacing.succeeded();
        assert_eq!(pacing.failed(), Duration::ZERO);
    }

    #[test]
    fn the_delays_stay_below_the_longest() {
        let mut pacing = Pacing::up_to(Duration::from_millis(250));
        assert!((0..1000).all(|_| pacing.failed() <= Duration::from_millis(250)));
    }

    #[test]
    fn jitter_takes_away_a_quarter_at_most() {
        for permille in [0, 1, 500, 999] {
            let mut pacing = Pacing { failures: 1, ..Pacing::default() };
            let delay = pacing.failed_with(permille);
            assert!(delay > FIRST * 3 / 4 && delay <= FIRST, "{delay:?}");
        }
    }
}
