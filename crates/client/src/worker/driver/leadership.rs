//! Attempts of a worker that works only while it leads.

use std::time::Instant;

use tracing::warn;

use super::Driver;
use crate::{
    Term,
    worker::{drain::Drain, report::Stop},
};

impl Driver {
    /// Ends the session if leadership is at risk: returns what was not started, stops what runs, and drops it
    /// before leadership is lost. A renewal that succeeds later changes nothing.
    pub(super) fn mind_leadership(&mut self, now: Instant) {
        let Some(term) = self.term.take_if(|term| term.is_at_risk()) else { return };
        let drop_at = term.ends_work_at();
        warn!(
            fence = term.fence(),
            attempts = self.jobs.len(),
            "no renewal of leadership succeeded in time; stopping the running attempts"
        );
        let timeout = drop_at.saturating_duration_since(now);
        self.drain.get_or_insert_with(|| Drain::begin(now, timeout)).hurry(drop_at.max(now));
        self.decline_waiting();
        self.jobs.stop_all(Stop::Deposed, drop_at);
    }
}

/// Waits until leadership is at risk; for ever without one.
pub(super) async fn at_risk(term: Option<&Term>) {
    match term {
        Some(term) => term.at_risk().await,
        None => std::future::pending().await,
    }
}
