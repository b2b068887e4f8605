//! Counts consecutive failed rounds of services: a service that keeps failing does no work, whatever the store answers
//! to a probe.

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
    /// [`crate::services::TriggerKeeper`].
    TriggerKeeper,
    /// [`crate::services::RolloutKeeper`].
    RolloutKeeper,
}

impl RoundsOf {
    /// All services, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Timekeeper,
        Self::LeaseKeeper,
        Self::Reclaimer,
        Self::Messenger,
        Self::ChangePoller,
        Self::Dispatcher,
        Self::EnqueueImporter,
        Self::Janitor,
        Self::DamageReporter,
        Self::TriggerKeeper,
        Self::RolloutKeeper,
    ];

    /// The name of the service in `/readyz` and the metrics.
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
            Self::TriggerKeeper => "triggers",
            Self::RolloutKeeper => "rollouts",
        }
    }
}

/// A service keeps failing after this number of failed rounds in a row: one second of rounds 100 ms apart, so that one
/// lost connection does not make a server unready.
pub const FAILING_AFTER: u64 = 10;

/// Rounds of this server's services.
#[derive(Debug, Default)]
pub struct Rounds {
    /// The number of failed rounds since the last successful one, by service.
    failures: [AtomicU64; RoundsOf::ALL.len()],
}

impl Rounds {
    /// Records the result of a round and returns it.
    pub(crate) fn note<T, E>(&self, of: RoundsOf, round: Result<T, E>) -> Result<T, E> {
        let failures = &self.failures[of as usize];
        match round {
            Ok(_) => failures.store(0, Ordering::Relaxed),
            Err(_) => drop(failures.fetch_add(1, Ordering::Relaxed)),
        }
        round
    }

    /// The number of failed rounds of a service since its last successful one.
    pub fn failures(&self, of: RoundsOf) -> u64 {
        self.failures[of as usize].load(Ordering::Relaxed)
    }

    /// The service that has failed most often in a row, if any keeps failing.
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
