//! The shutdown of a worker: its stages and time limits.

use std::time::{Duration, Instant};

use super::jobs::STOP_GRACE;

/// The time limit for the last reports after all attempts have ended.
pub(super) const LAST_CALLS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a drained worker waits for a poll that was open when the drain began.
const OLD_POLL_TIMEOUT: Duration = Duration::from_millis(250);

/// A bound that no drain reaches.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A drain in progress.
///
/// A separate call asks the server for no more attempts. The open poll stays open: to abort it could lose
/// attempts in transit, which the server would count as lost.
#[derive(Debug)]
pub(super) struct Drain {
    /// When running attempts are stopped; none after that.
    stop_at: Option<Instant>,
    /// When the worker exits in any case.
    leave_at: Instant,
    /// Whether the server was asked for no more attempts.
    asked: bool,
    /// When the server answered that, or was unreachable.
    heard_at: Option<Instant>,
}

impl Drain {
    pub(super) fn begin(now: Instant, timeout: Duration) -> Self {
        let stop_at = now + timeout.min(TIMEOUT_MAX);
        let leave_at = stop_at + STOP_GRACE + LAST_CALLS_TIMEOUT;
        Self { stop_at: Some(stop_at), leave_at, asked: false, heard_at: None }
    }

    /// The attempts were stopped, and are dropped at `drop_at`: the worker exits soon after.
    pub(super) fn hurry(&mut self, drop_at: Instant) {
        self.stop_at = None;
        self.leave_at = self.leave_at.min(drop_at + LAST_CALLS_TIMEOUT);
    }

    /// Whether to ask the server now for no more attempts. True once.
    pub(super) fn asks(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// The server has confirmed that it sends no more attempts, or is unreachable.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = Some(now);
    }

    /// Whether to stop the running attempts now. True once.
    pub(super) fn stops(&mut self, now: Instant) -> bool {
        self.stop_at.take_if(|stop_at| *stop_at <= now).is_some()
    }

    /// Whether the worker must exit now in any case.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.leave_at <= now
    }

    /// Whether no attempt can be in transit any more, with this number of older polls still open.
    pub(super) fn is_quiet(&self, polls_open: usize, now: Instant) -> bool {
        self.heard_at.is_some_and(|heard_at| polls_open == 0 || heard_at + OLD_POLL_TIMEOUT <= now)
    }

    /// When an older poll no longer needs to be awaited.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        self.heard_at.map(|heard_at| heard_at + OLD_POLL_TIMEOUT)
    }

    /// When [`Self::stops`] or [`Self::is_over`] becomes true.
    pub(super) fn next_due(&self) -> Instant {
        self.stop_at.unwrap_or(self.leave_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_asks_once_stops_once_and_then_leaves() {
        let start = Instant::now();
        let mut drain = Drain::begin(start, Duration::from_secs(30));
        assert!(drain.asks() && !drain.asks());
        assert_eq!(drain.next_due(), start + Duration::from_secs(30));
        assert!(!drain.stops(start + Duration::from_secs(29)));
        assert!(drain.stops(start + Duration::from_secs(30)));
        assert!(!drain.stops(start + Duration::from_secs(31)));
        assert_eq!(drain.next_due(), start + Duration::from_secs(38));
        assert!(!drain.is_over(start + Duration::from_secs(37)));
        assert!(drain.is_over(start + Duration::from_secs(38)));
    }

    #[test]
    fn an_old_poll_is_waited_for_a_moment() {
        let start = Instant::now();
        let mut drain = Drain::begin(start, Duration::ZERO);
        assert!(!drain.is_quiet(0, start), "the server was not heard yet");
        drain.heard(start);
        assert!(drain.is_quiet(0, start));
        assert!(!drain.is_quiet(1, start));
        assert!(drain.is_quiet(1, drain.quiet_at().unwrap()));
    }
}
