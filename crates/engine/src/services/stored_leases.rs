//! Until when the leases in the store are current.
//!
//! A worker's call renews its lease in the store. If this server was suspended, or its store was slow or unavailable, the stored lease
//! ends too early: the worker was not silent, and must not lose its attempts.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_core::Millis;
use windlass_store::Now;

/// If leases have not been current for longer, later silence of workers means nothing. Less than half of the shortest lease: a server
/// that was suspended that long could not receive renewals in time.
const AWAY_AFTER: Millis = Millis(400);

/// What this server knows about the leases in its store.
#[derive(Debug, Default)]
pub(crate) struct StoredLeases {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The store has all renewals up to this time. None before the first round of the lease keeper.
    current_until: Option<Millis>,
    /// The beginning of the first write that failed since then.
    failed_since: Option<Millis>,
    /// The beginnings of the renewals that have not returned, by their numbers.
    pending: BTreeMap<u64, Millis>,
    last_number: u64,
}

/// A time in which renewals did not reach the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Absence {
    pub(super) since: Millis,
    /// The store has failed. Otherwise this server was suspended, or its store was slow.
    pub(super) has_failed: bool,
}

impl StoredLeases {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A renewal begins. Returns its number.
    pub(crate) fn begin(&self, now: Now) -> u64 {
        let mut state = self.state();
        state.last_number += 1;
        let number = state.last_number;
        state.pending.insert(number, now.mono);
        number
    }

    /// The renewal with this number has returned.
    pub(crate) fn end(&self, number: u64, has_failed: bool) {
        let mut state = self.state();
        if let Some(began) = state.pending.remove(&number).filter(|_| has_failed) {
            state.fail(began);
        }
    }

    /// A write that began at this time has failed.
    pub(super) fn fail(&self, now: Now) {
        self.state().fail(now.mono);
    }

    /// The time at which the silence of workers is judged: now, or the time until which leases are current if that is long ago. None
    /// before the first round of the lease keeper.
    pub(super) fn judged_at(&self, now: Now) -> Option<Now> {
        let until = self.state().current_until?;
        Some(if is_long_ago(until, now) { Now { mono: until, ..now } } else { now })
    }

    /// The absence in which leases were not renewed, if it was long.
    pub(super) fn absence(&self, now: Now) -> Option<Absence> {
        let state = self.state();
        let since = state.current_until.filter(|until| is_long_ago(*until, now))?;
        Some(Absence { since, has_failed: state.failed_since.is_some() })
    }

    /// All sessions whose renewals may have failed have new leases. Earlier writes are of no interest any longer.
    pub(super) fn forget_writes(&self) {
        let mut state = self.state();
        state.failed_since = None;
        state.pending.clear();
    }

    /// A round of the lease keeper that began at this time has succeeded. If it has renewed a session, the store is available, and
    /// the renewals that failed before were repeated.
    pub(super) fn kept(&self, now: Now, has_renewed: bool) {
        let mut state = self.state();
        if has_renewed {
            state.failed_since = None;
        }
        let earlier = state.pending.values().copied().chain(state.failed_since).min();
        let until = earlier.map_or(now.mono, |earlier| earlier.min(now.mono));
        state.current_until = state.current_until.max(Some(until));
    }
}

impl State {
    fn fail(&mut self, began: Millis) {
        let first = self.failed_since.map_or(began, |since| since.min(began));
        self.failed_since = Some(first);
    }
}

fn is_long_ago(then: Millis, now: Now) -> bool {
    now.mono.0 > then.0.saturating_add(AWAY_AFTER.0)
}
