//! How often services fail one round after the other: a service that keeps failing does nothing any more, whatever the
//! store answers to a probe.

use std::sync::atomic::{AtomicU64, Ordering};

/// A service that works in rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundsOf {
    /// [`crate::services::Timekeeper`].
    Timekeeper,
    /// [`crate::services::LeaseKeeper`].
    LeaseKeeper,
    /// [`crate::services::Reclaimer`].
    Reclaimer,
    /// [`crate::services::Messenger`].
    Messenger,
    /// [`crate::services::ChangePoller`].
    ChangePoller,
    /// [`crate::services::Dispatcher`].
    Dispatcher,
    /// [`crate::services::EnqueueImporter`].
    EnqueueImporter,
    /// [`crate::services::Janitor`].
    Janitor,
    /// [`crate::services::DamageReporter`].
    DamageReporter,
}

impl RoundsOf {
    /// All of them, by their numbers.
    pub const ALL: [Self; 9] = [
        Self::Timekeeper,
        Self::LeaseKeeper,
        Self::Reclaimer,
        Self::Messenger,
        Self::ChangePoller,
        Self::Dispatcher,
        Self::EnqueueImporter,
        Self::Janitor,
        Self::DamageReporter,
    ];

    /// What the service is for, as `/readyz` and the metrics name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timekeeper => "timers",
            Self::LeaseKeeper => "leases",
            Self::Reclaimer => "lost_attempts",
            Self::Messenger => "messages",
            Self::ChangePoller => "changes_of_others",
            Self::Dispatcher => "dispatch",
            Self::EnqueueImporter => "enqueued",
            Self::Janitor => "retention",
            Self::DamageReporter => "damage_reports",
        }
    }
}

/// A service keeps failing once so many rounds in a row have failed: a second of rounds 100 ms apart, so that one lost
/// connection does not make a server unready.
pub const FAILING_AFTER: u64 = 10;

/// Rounds of this server's services.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Rounds that failed since the last that did not, by service.
    failures: [AtomicU64; RoundsOf::ALL.len()],
}

impl Rounds {
    /// A round of a service has ended; gives what came of it.
    pub(crate) fn note<T, E>(&self, of: RoundsOf, round: Result<T, E>) -> Result<T, E> {
        let failures = &self.failures[of as usize];
        match round {
            Ok(_) => failures.store(0, Ordering::Relaxed),
            Err(_) => drop(failures.fetch_add(1, Ordering::Relaxed)),
        }
        round
    }

    /// How many rounds of a service have failed since the last that did not.
    pub fn failures(&self, of: RoundsOf) -> u64 {
        self.failures[of as usize].load(Ordering::Relaxed)
    }

    /// The service that has failed for longest, if any keeps failing.
    pub fn failing(&self) -> Option<RoundsOf> {
        let worst = RoundsOf::ALL.into_iter().max_by_key(|of| self.failures(*of));
        worst.filter(|of| self.failures(*of) >= FAILING_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_keeps_failing_until_a_round_of_it_succeeds() {
        let rounds = Rounds::default();
        for failed in 1..FAILING_AFTER {
            assert_eq!(rounds.note::<(), _>(RoundsOf::EnqueueImporter, Err(failed)), Err(failed));
            assert_eq!(rounds.note::<_, ()>(RoundsOf::Janitor, Ok(())), Ok(()));
        }
        assert_eq!(rounds.failing(), None);
        assert_eq!(rounds.note::<(), _>(RoundsOf::EnqueueImporter, Err(0)), Err(0));
        assert_eq!(rounds.failing(), Some(RoundsOf::EnqueueImporter));
        assert_eq!(rounds.note::<_, ()>(RoundsOf::EnqueueImporter, Ok(())), Ok(()));
        assert_eq!((rounds.failing(), rounds.failures(RoundsOf::EnqueueImporter)), (None, 0));
    }
}
