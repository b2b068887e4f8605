//! How long the worker may rely on its claims.

use std::time::{Duration, Instant};

/// The wait of the first poll, before the worker knows the server's lease time: an immediate answer confirms
/// the connection.
const FIRST_WAIT: Duration = Duration::ZERO;

/// The longest wait of a poll that the server accepts.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How long after the requested wait an answer may arrive before the poll counts as lost.
const SLACK_MAX: Duration = Duration::from_secs(2);

/// The session's lease as the worker sees it. It counts from the time at which an answered call was sent, so
/// the server's own lease never ends earlier.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lease {
    /// The time at which the last answered call was sent, and the lease in its answer.
    renewed: Option<(Instant, Duration)>,
    /// Whether the attempts were stopped because the lease may be over.
    lapsed: bool,
}

impl Lease {
    /// A call sent at `sent_at` was answered with this lease.
    pub(super) fn renew(&mut self, sent_at: Instant, lease: Duration) {
        let newest = self.renewed.map_or(sent_at, |(before, _)| before.max(sent_at));
        self.renewed = Some((newest, lease));
        self.lapsed = false;
    }

    /// The wait of a poll: a quarter of the lease. The answer must arrive well before two thirds of the lease
    /// have passed since the previous poll was sent.
    pub(super) fn poll_wait(&self) -> Duration {
        self.renewed.map_or(FIRST_WAIT, |(_, lease)| (lease / 4).min(WAIT_MAX))
    }

    /// The time after which a poll with this wait counts as lost.
    pub(super) fn poll_timeout(&self, wait: Duration) -> Duration {
        let slack = self.renewed.map_or(SLACK_MAX, |(_, lease)| (lease / 4).min(SLACK_MAX));
        wait + slack
    }

    /// When the attempts must stop unless an answer arrives: at two thirds of the lease, so that they have
    /// ended when other workers may claim them.
    pub(super) fn stop_at(&self) -> Option<Instant> {
        if self.lapsed {
            return None;
        }
        self.renewed.map(|(sent_at, lease)| sent_at + lease * 2 / 3)
    }

    /// When other workers may claim the attempts.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.renewed.map(|(sent_at, lease)| sent_at + lease)
    }

    /// The attempts were stopped. They are not stopped again before the lease is renewed.
    pub(super) fn lapse(&mut self) {
        self.lapsed = true;
    }

    /// Whether any call was answered.
    pub(super) fn is_known(&self) -> bool {
        self.renewed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn polls_answered_on_time_keep_the_lease_alive() {
        for lease_length in [SECOND, SECOND * 10, SECOND * 3600] {
            let mut lease = Lease::default();
            let mut sent_at = Instant::now();
            lease.renew(sent_at, lease_length);
            for _ in 0..10 {
                sent_at += lease.poll_wait();
                // An answer sent at the last moment still arrives before the stop.
                let answered_at = sent_at + lease.poll_wait();
                assert!(answered_at < lease.stop_at().unwrap(), "{lease_length:?}");
                lease.renew(sent_at, lease_length);
            }
            assert!(lease.poll_wait() <= WAIT_MAX);
        }
    }

    #[test]
    fn a_lease_lapses_once_and_is_renewed_by_the_next_answer() {
        let start = Instant::now();
        let mut lease = Lease::default();
        assert_eq!((lease.stop_at(), lease.poll_wait()), (None, FIRST_WAIT));
        lease.renew(start, SECOND * 9);
        assert_eq!(lease.stop_at(), Some(start + SECOND * 6));
        assert_eq!(lease.ends_at(), Some(start + SECOND * 9));
        lease.lapse();
        assert_eq!(lease.stop_at(), None);
        lease.renew(start + SECOND * 20, SECOND * 9);
        assert_eq!(lease.stop_at(), Some(start + SECOND * 26));
    }

    #[test]
    fn an_answer_that_comes_late_does_not_turn_the_lease_back() {
        let start = Instant::now();
        let mut lease = Lease::default();
        lease.renew(start + SECOND, SECOND * 9);
        lease.renew(start, SECOND * 9);
        assert_eq!(lease.ends_at(), Some(start + SECOND * 10));
    }
}
