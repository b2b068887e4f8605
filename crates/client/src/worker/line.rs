//! When the next call of a kind may be made. Polls and report calls have separate delays, so that a failure
//! of one does not delay the other.

use std::time::Instant;

use crate::{Error, pacing::Pacing};

/// The state of one kind of call.
#[derive(Debug, Default)]
pub(super) struct Line {
    pacing: Pacing,
    /// The earliest time of the next call.
    pub(super) not_before: Option<Instant>,
    /// Whether the last call found no server.
    unreachable: bool,
}

impl Line {
    pub(super) fn paced(pacing: Pacing) -> Self {
        Self { pacing, ..Self::default() }
    }

    pub(super) fn may_call(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|not_before| not_before <= now)
    }

    pub(super) fn succeeded(&mut self) {
        self.pacing.succeeded();
        self.not_before = None;
        self.unreachable = false;
    }

    pub(super) fn failed(&mut self, error: &Error) {
        self.not_before = Some(Instant::now() + self.pacing.failed());
        self.unreachable = matches!(error, Error::Unreachable { .. });
    }

    /// A call of the other kind reached the server.
    pub(super) fn server_is_there(&mut self) {
        if self.unreachable {
            self.not_before = None;
        }
    }
}
