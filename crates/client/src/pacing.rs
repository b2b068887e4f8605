//! How soon a call that went wrong is made again.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The first delay after the retry that is made at once.
const FIRST: Duration = Duration::from_millis(100);

/// The longest delay, where nobody needs to be back sooner.
const LONGEST: Duration = Duration::from_secs(1);

/// How fast the delays grow, in percent. A restart takes about half a second: within it the delays stay short.
const GROWTH_PERCENT: u32 = 125;

/// At once, then after 100 ms, growing up to a longest delay, each a quarter shorter at random so that the callers of a
/// server that was away do not all come back in the same moment. It never says to give up.
#[derive(Debug, Clone)]
pub(crate) struct Pacing {
    failures: u32,
    longest: Duration,
}

impl Default for Pacing {
    fn default() -> Self {
        Self::up_to(LONGEST)
    }
}

impl Pacing {
    /// Delays that grow up to that long.
    pub(crate) fn up_to(longest: Duration) -> Self {
        Self { failures: 0, longest }
    }

    /// The call went wrong: how long to wait before the next one.
    pub(crate) fn failed(&mut self) -> Duration {
        // The seed differs in every process and every call; nothing here needs better randomness.
        let permille = u32::try_from(RandomState::new().hash_one(self.failures) % 1000).unwrap_or(0);
        self.failed_with(permille)
    }

    /// The call went well: the next failure is the first one again.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    fn failed_with(&mut self, permille: u32) -> Duration {
        let failures_before = self.failures;
        self.failures = self.failures.saturating_add(1);
        if failures_before == 0 {
            return Duration::ZERO;
        }
        // From 11 steps on the delay is the longest one anyway.
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
