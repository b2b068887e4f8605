//! When the next call of a kind may be made: polls and report calls go their own ways, and a failure of one does not
//! hold the other up.

use std::time::Instant;

use crate::{Error, pacing::Pacing};

/// How one kind of call goes.
#[derive(Debug, Default)]
pub(super) struct Line {
    pacing: Pacing,
    /// No call before this.
    pub(super) not_before: Option<Instant>,
    /// The last call found no server.
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

    /// A call of the other kind found the server.
    pub(super) fn server_is_there(&mut self) {
        if self.unreachable {
            self.not_before = None;
        }
    }
}
