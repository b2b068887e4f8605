//! When the next call of a kind may be made. Polls and report calls have separate delays, so that a failure
//! of one does not delay the other.

use std::time::Instant;

use crate::{Error, pacing::Pacing};

/// The state of one kind of call.
#[derive(Debug)]
pub(super) struct Line {
    /// The delays while the server is unavailable.
    pacing: Pacing,
    /// The delays after failures that do not pass by themselves.
    lasting_pacing: Pacing,
    /// The earliest time of the next call.
    pub(super) not_before: Option<Instant>,
    /// Whether the last call found no server.
    unreachable: bool,
}

impl Default for Line {
    fn default() -> Self {
        Self::paced(Pacing::default())
    }
}

impl Line {
    pub(super) fn paced(pacing: Pacing) -> Self {
        Self { pacing, lasting_pacing: Pacing::for_lasting_failures(), not_before: None, unreachable: false }
    }

    pub(super) fn may_call(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|not_before| not_before <= now)
    }

    pub(super) fn succeeded(&mut self) {
        self.pacing.succeeded();
        self.lasting_pacing.succeeded();
        self.not_before = None;
        self.unreachable = false;
    }

    pub(super) fn failed(&mut self, error: &Error) {
        let now = Instant::now();
        self.unreachable = matches!(error, Error::Unreachable { .. });
        if error.is_temporary() {
            self.not_before = Some(now + self.pacing.failed());
        } else if self.may_call(now) {
            // Calls that were made together fail together, which counts as one failure.
            self.not_before = Some(now + self.lasting_pacing.failed());
        }
    }

    /// A call of the other kind reached the server.
    pub(super) fn server_is_there(&mut self) {
        if self.unreachable {
            self.not_before = None;
        }
    }

    /// No call of this kind is made before this time.
    pub(super) fn wait_until(&mut self, time: Instant) {
        self.not_before = self.not_before.max(Some(time));
    }

    /// The reason of the last failure is gone: the next call may be made at once.
    pub(super) fn is_corrected(&mut self) {
        self.lasting_pacing.succeeded();
        self.not_before = None;
    }
}
