//! Until when a leader may act.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::CoordinatorError;

/// The part of a lease that is left out, because two clocks do not run equally fast: 1 in 50. Clocks that NTP
/// slews differ by 1 in 1,000 at most.
const CLOCKS_DIFFER_BY: u32 = 50;

/// Until when a leader may act. It is counted on the monotonic clock of this process from before a renewal was
/// sent, because the coordinator cannot have begun to count earlier. It never moves backwards, except to end.
#[derive(Debug)]
pub struct Bound {
    lease: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    until: Instant,
    has_ended: bool,
}

impl Bound {
    /// The bound of a lease that the coordinator granted for this time, after a request sent at `sent`.
    #[must_use]
    pub fn new(lease: Duration, sent: Instant) -> Self {
        let until = sent + Self::surely(lease);
        Self { lease, state: Mutex::new(State { until, has_ended: false }) }
    }

    /// What is surely left of a lease whose clock is another one.
    fn surely(lease: Duration) -> Duration {
        lease - lease / CLOCKS_DIFFER_BY
    }

    /// Notes that a renewal, sent at `sent`, succeeded. Has no effect after the end.
    pub fn renewed(&self, sent: Instant) {
        let mut state = self.lock();
        if !state.has_ended {
            state.until = state.until.max(sent + Self::surely(self.lease));
        }
    }

    /// Notes the answer to a renewal sent at `sent`: a lost leadership ends it, another error changes nothing. Returns
    /// the answer.
    ///
    /// # Errors
    ///
    /// The error of the answer.
    pub fn answered(
        &self,
        sent: Instant,
        answer: Result<(), CoordinatorError>,
    ) -> Result<(), CoordinatorError> {
        match &answer {
            Ok(()) => self.renewed(sent),
            Err(CoordinatorError::Lost(_)) => self.end(),
            Err(_) => {}
        }
        answer
    }

    /// Ends it now, for good.
    pub fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.until = state.until.min(Instant::now());
    }

    /// Until when the leader may act.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.lock().until
    }

    /// Whether the leader may act no more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until()
    }

    /// Waits until it is over, whatever is renewed meanwhile.
    pub async fn over(&self) {
        while !self.is_over() {
            tokio::time::sleep_until(self.until().into()).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(50);

    #[test]
    fn is_counted_from_before_the_renewal_was_sent() {
        let sent = Instant::now();
        let bound = Bound::new(LEASE, sent);
        assert_eq!(bound.until(), sent + Duration::from_secs(49));
        bound.renewed(sent + Duration::from_secs(5));
        assert_eq!(bound.until(), sent + Duration::from_secs(54));
        // Answers may overtake one another.
        bound.renewed(sent + Duration::from_secs(2));
        assert_eq!(bound.until(), sent + Duration::from_secs(54));
    }

    #[test]
    fn what_ended_is_not_renewed() {
        let bound = Bound::new(LEASE, Instant::now());
        assert!(!bound.is_over());
        bound.end();
        bound.renewed(Instant::now());
        assert!(bound.is_over());
    }
}
