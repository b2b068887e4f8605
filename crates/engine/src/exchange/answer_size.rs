//! Decides which claimed attempts fit in one answer, and fails attempts that are too large for any answer.

use windlass_core::{Attempt, Command, Direction, Failure, Outcome, Report};
use windlass_store::AttemptId;

use super::{ANSWER_BYTES_MAX, ATTEMPTS_MAX, HandedOut, PARAMS_BYTES_MAX, Results};
use crate::{Engine, deciding::inbox::Item};

/// The maximum bytes of an attempt in an answer besides its parameters, result and message: names, token, idempotency
/// key.
const ENVELOPE_BYTES_MAX: usize = 1200;

/// The size of an answer so far.
#[derive(Debug, Default)]
pub(super) struct AnswerSize {
    attempts: usize,
    bytes: usize,
}

impl AnswerSize {
    /// Adds an attempt if it fits. The first one always fits.
    pub(super) fn add(&mut self, attempt: &HandedOut) -> bool {
        let bytes = self.bytes + attempt.bytes();
        let fits = self.attempts == 0 || (self.attempts < ATTEMPTS_MAX && bytes <= ANSWER_BYTES_MAX);
        if fits {
            (self.attempts, self.bytes) = (self.attempts + 1, bytes);
        }
        fits
    }
}

impl HandedOut {
    pub(crate) fn is_too_large(&self) -> bool {
        self.params.as_str().len() > PARAMS_BYTES_MAX
    }

    /// Its approximate size in an answer, in bytes. A rollback also gets the step's result and the failure message.
    fn bytes(&self) -> usize {
        let mut bytes = ENVELOPE_BYTES_MAX + self.params.as_str().len();
        if let Results::These(results) = &self.results {
            bytes += results.as_str().len();
        }
        if self.id.key.direction == Direction::Rollback {
            bytes += self.task.done_by(self.id.key).map_or(0, |result| result.as_str().len());
            bytes += self.task.message().map_or(0, |message| message.len());
        }
        bytes
    }
}

impl Engine {
    /// Fails an attempt without a retry because its parameters have grown beyond the limit.
    pub(crate) fn refuse_too_large(&self, id: AttemptId) {
        self.refuse_offered(id, "its parameters have grown beyond 4 MiB: return less from the steps before");
    }

    /// Fails an attempt without a retry because it cannot be handed to any worker.
    pub(crate) fn refuse_offered(&self, id: AttemptId, message: &str) {
        let failure = Failure::new(message, 1, false);
        let attempt = Attempt { key: id.key, number: id.attempt, started_at: None };
        let command = Command::Report(Report { attempt, outcome: Outcome::Failed(failure) });
        self.inbox.post(vec![Item::Task { id: id.task, command, claim: Some(id.claim), logs: Vec::new() }]);
    }
}
