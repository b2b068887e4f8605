//! What a worker's process knows.

use std::collections::BTreeMap;

use windlass_engine::{Exchange, Said, WorkerReport};
use windlass_store::AttemptId;

use crate::{
    actors::{lease::Lease, polls::Polls},
    world::JobId,
};

#[derive(Default)]
pub(super) struct State {
    pub(super) seq: u64,
    pub(super) polls: Polls,
    /// The number of polls in a row that failed.
    pub(super) failed_polls: u64,
    /// Its last call failed.
    pub(super) is_cut_off: bool,
    /// It pauses before it polls again.
    pub(super) is_pausing: bool,
    pub(super) server: usize,
    pub(super) runs: BTreeMap<String, Run>,
    /// Unsent reports, by token.
    pub(super) outbox: BTreeMap<String, Outgoing>,
    pub(super) lease: Lease,
}

pub(super) struct Run {
    pub(super) number: u64,
    pub(super) id: AttemptId,
    pub(super) job: JobId,
}

/// A call.
pub(super) struct Sent {
    pub(super) call: Exchange,
    /// The attempts that run.
    pub(super) named: Vec<AttemptId>,
    pub(super) server: usize,
}

/// The unsent reports of an attempt.
pub(super) struct Outgoing {
    pub(super) id: AttemptId,
    pub(super) reports: Vec<WorkerReport>,
}

impl Outgoing {
    pub(super) fn is_declined(&self) -> bool {
        self.reports.iter().any(|report| matches!(report.said, Ok(Said::Declined)))
    }
}
