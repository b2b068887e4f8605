//! What an answered request proves about the session.
//!
//! A session ends when the leader of the ensemble has not heard of it for its timeout. A follower notes each
//! request of a session, and reports that in its answer to a ping of the leader, twice a tick. Until then only
//! the follower knows. One that is cut off from the leader even answers reads and pings for some ticks more.
//!
//! So only a write proves something, and nothing about itself: a follower sends writes and reports to the
//! leader by one connection, in order. An answered write proves that the leader has heard of each request that
//! the follower got at least half a tick before. By default a timeout is at least two ticks, so half a
//! tick is at most a quarter of it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The part of a session timeout that a request must be older than a write which proves it: 1 in 4.
const GAP_PART: u32 = 4;

/// The most requests that are remembered. A renewal every quarter of the timeout needs three.
const REQUESTS_MAX: usize = 64;

/// When the answered requests by this connection were sent.
#[derive(Debug)]
pub(super) struct Touches {
    gap: Duration,
    sent: VecDeque<Instant>,
}

impl Touches {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { gap: timeout / GAP_PART, sent: VecDeque::new() }
    }

    /// Forgets all: another server has none of them.
    pub(super) fn clear(&mut self) {
        self.sent.clear();
    }

    /// Notes that a request was answered. Returns the time from which the session's timeout is counted at the
    /// earliest, if this is a write and proves one.
    pub(super) fn answered(&mut self, sent: Instant, is_write: bool) -> Option<Instant> {
        let mut proved = None;
        if is_write {
            while let Some(earlier) = self.sent.front().filter(|earlier| **earlier + self.gap <= sent) {
                proved = Some(*earlier);
                self.sent.pop_front();
            }
        }
        // Answers of concurrent requests may overtake one another, and one of several in a moment will do.
        let is_later = |last: &Instant| sent.saturating_duration_since(*last) >= self.gap / GAP_PART;
        if self.sent.len() < REQUESTS_MAX && self.sent.back().is_none_or(is_later) {
            self.sent.push_back(sent);
        }
        proved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(40);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_write_proves_the_last_request_that_is_old_enough() {
        let begin = Instant::now();
        let mut touches = Touches::new(TIMEOUT);
        assert_eq!(touches.answered(begin, true), None, "not itself");
        assert_eq!(touches.answered(begin + seconds(9), true), None, "nothing is old enough");
        assert_eq!(touches.answered(begin + seconds(15), false), None, "a read proves nothing");
        assert_eq!(touches.answered(begin + seconds(20), true), Some(begin + seconds(9)));
        assert_eq!(touches.answered(begin + seconds(25), true), Some(begin + seconds(15)));
        touches.clear();
        assert_eq!(touches.answered(begin + seconds(60), true), None);
    }

    #[test]
    fn few_are_remembered() {
        let begin = Instant::now();
        let mut touches = Touches::new(TIMEOUT);
        for number in 0..1000 {
            touches.answered(begin + Duration::from_millis(number), false);
        }
        assert_eq!(touches.sent.len(), 1);
        for number in 0..1000 {
            touches.answered(begin + seconds(3 * number), false);
        }
        assert_eq!(touches.sent.len(), REQUESTS_MAX);
        let proved = touches.answered(begin + seconds(3000), true).unwrap();
        assert!(proved <= begin + seconds(2990));
    }
}
