//! For how long what the worker holds is surely its own.

use std::time::{Duration, Instant};

/// What is asked of the first poll, before the server has said how long its leases are: an answer at once, so that it is
/// known and told that the connection stands.
const FIRST_WAIT: Duration = Duration::ZERO;

/// The longest wait of a poll that the server takes.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How much later than asked the answer of a poll may come before the poll counts as lost.
const SLACK_MAX: Duration = Duration::from_secs(2);

/// The lease of the session as the worker sees it: it counts from when a call that was answered was sent, so the
/// server's own lease ends later, never earlier.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lease {
    /// When the last call that was answered was sent, and the lease it was given.
    renewed: Option<(Instant, Duration)>,
    /// The attempts were stopped because the lease may be over.
    lapsed: bool,
}

impl Lease {
    /// A call sent then was answered with that lease.
    pub(super) fn renew(&mut self, sent_at: Instant, lease: Duration) {
        let newest = self.renewed.map_or(sent_at, |(before, _)| before.max(sent_at));
        self.renewed = Some((newest, lease));
        self.lapsed = false;
    }

    /// How long a poll is to wait. A quarter of the lease: the answer of a poll must come well before two thirds
    /// of the lease have gone by since the poll before it was sent.
    pub(super) fn poll_wait(&self) -> Duration {
        self.renewed.map_or(FIRST_WAIT, |(_, lease)| (lease / 4).min(WAIT_MAX))
    }

    /// When a poll that was asked to wait that long counts as lost.
    pub(super) fn poll_timeout(&self, wait: Duration) -> Duration {
        let slack = self.renewed.map_or(SLACK_MAX, |(_, lease)| (lease / 4).min(SLACK_MAX));
        wait + slack
    }

    /// When the attempts must be stopped if nothing is heard until then: at two thirds of the lease, so that they
    /// have ended when the server gives them to others.
    pub(super) fn stop_at(&self) -> Option<Instant> {
        if self.lapsed {
            return None;
        }
        self.renewed.map(|(sent_at, lease)| sent_at + lease * 2 / 3)
    }

    /// When the server may give the attempts to others.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.renewed.map(|(sent_at, lease)| sent_at + lease)
    }

    /// The attempts were stopped; they are stopped again only after the lease was renewed.
    pub(super) fn lapse(&mut self) {
        self.lapsed = true;
    }

    /// Whether a call was ever answered.
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
                // The answer of a poll that was answered at the last moment still comes before the stop.
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
