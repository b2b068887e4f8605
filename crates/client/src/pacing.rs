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

/// The growth of the delays of failures that do not pass by themselves, in percent.
const GROWTH_OF_LASTING_PERCENT: u32 = 200;

/// The longest of these delays.
const LONGEST_OF_LASTING: Duration = Duration::from_secs(60);

/// The first delay after a refused token. A server lets an address try 20 wrong tokens in a minute, and many workers may
/// have the same address.
const FIRST_OF_TOKENS: Duration = Duration::from_secs(5);

/// Retries immediately, then after 100 ms, with delays that grow up to a maximum. Each delay is up to a
/// quarter shorter at random, so that the callers of a restarted server do not all come back at once. Never
/// gives up.
#[derive(Debug, Clone)]
pub struct Pacing {
    failures: u32,
    retries_at_once: bool,
    first: Duration,
    growth_percent: u32,
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
        Self { failures: 0, retries_at_once: true, first: FIRST, growth_percent: GROWTH_PERCENT, longest }
    }

    /// Delays for failures that do not pass by themselves. They double up to a minute. The first ones are short: the
    /// failure may be one of a proxy that is being changed.
    pub(crate) fn for_lasting_failures() -> Self {
        Self { growth_percent: GROWTH_OF_LASTING_PERCENT, ..Self::up_to(LONGEST_OF_LASTING) }
    }

    /// The same after a refused token: the first delay is 5 s.
    pub(crate) fn for_refused_tokens() -> Self {
        Self { retries_at_once: false, first: FIRST_OF_TOKENS, ..Self::for_lasting_failures() }
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
        let delays_before = match (self.retries_at_once, failures_before) {
            (true, 0) => return Duration::ZERO,
            (true, failures) => failures - 1,
            (false, failures) => failures,
        };
        // By then the delay is the longest one anyway.
        let grown = (0..delays_before.min(11)).fold(self.first, |delay, _| delay * self.growth_percent / 100);
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
    fn what_lasts_is_tried_less_and_less_and_a_refused_token_seldom_from_the_start() {
        let delays = |mut pacing: Pacing| -> Vec<u128> {
            (0..20).map(|_| pacing.failed_with(0).as_millis()).collect()
        };
        let lasting = delays(Pacing::for_lasting_failures());
        assert_eq!(lasting[..5], [0, 100, 200, 400, 800]);
        let refused = delays(Pacing::for_refused_tokens());
        assert_eq!(refused[..6], [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
        assert_eq!((lasting[19], refused[19]), (60_000, 60_000));
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
