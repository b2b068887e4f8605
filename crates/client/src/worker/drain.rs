//! The end of a worker: what it waits for, and for how long.

use std::time::{Duration, Instant};

use super::jobs::STOP_GRACE;

/// How long the last reports may take after everything has ended.
pub(super) const LAST_CALLS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a drained worker waits for a poll that was open when the drain began.
const OLD_POLL_TIMEOUT: Duration = Duration::from_millis(250);

/// Longer than anybody waits for a drain.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A drain that has begun.
///
/// The server is asked in a call of its own to give nothing more. The poll that is open stays open beside it:
/// cutting it off could lose attempts that are on their way, and the server would count them as lost.
#[derive(Debug)]
pub(super) struct Drain {
    /// When what still runs is stopped; none once that is done.
    stop_at: Option<Instant>,
    /// When the worker leaves, whatever is not done.
    leave_at: Instant,
    /// Whether the server was asked to give nothing more.
    asked: bool,
    /// When the server answered that, or could not be reached.
    heard_at: Option<Instant>,
}

impl Drain {
    pub(super) fn begin(now: Instant, timeout: Duration) -> Self {
        let stop_at = now + timeout.min(TIMEOUT_MAX);
        let leave_at = stop_at + STOP_GRACE + LAST_CALLS_TIMEOUT;
        Self { stop_at: Some(stop_at), leave_at, asked: false, heard_at: None }
    }

    /// Whether the server is to be asked to give nothing more: once.
    pub(super) fn asks(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// The server answered that it gives nothing more, or could not be reached.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = Some(now);
    }

    /// Whether what still runs is to be stopped: once.
    pub(super) fn stops(&mut self, now: Instant) -> bool {
        self.stop_at.take_if(|stop_at| *stop_at <= now).is_some()
    }

    /// Whether the worker leaves, whatever is not done.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.leave_at <= now
    }

    /// Whether no attempts can be on their way any more, with that many polls open from before.
    pub(super) fn is_quiet(&self, polls_open: usize, now: Instant) -> bool {
        self.heard_at.is_some_and(|heard_at| polls_open == 0 || heard_at + OLD_POLL_TIMEOUT <= now)
    }

    /// When a poll from before need not be waited for any more.
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
