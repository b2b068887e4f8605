//! Changes of one commit that are built on one another: when one fails, so do those that were decided on what it makes.
//!
//! Versions do not tell: what came in its place may have brought the aggregate to the same version by other events.

use std::collections::BTreeSet;

use windlass_core::planted::{Bug, is_planted};

use super::{Change, Outcome, Sender};

/// What failed of a commit by now.
#[derive(Debug, Default)]
pub struct BuiltOn {
    failed: BTreeSet<Sender>,
}

impl BuiltOn {
    /// The outcome of the next change: what `decide` says, unless an earlier change has failed that it builds on: one of
    /// the same task or lock, or the one that was to send the message that it consumes. It is a conflict then.
    pub fn outcome(&mut self, change: &Change, decide: impl FnOnce() -> Outcome) -> Outcome {
        let outcome = if self.has_failed_before(change) { Outcome::Conflict } else { decide() };
        if outcome != Outcome::Committed {
            self.failed.extend(aggregate(change));
        }
        outcome
    }

    /// Whether something has failed that this change builds on. Another change may send a different message with the id
    /// of the one that it consumes.
    fn has_failed_before(&self, change: &Change) -> bool {
        // Nearly always nothing has failed.
        if self.failed.is_empty() {
            return false;
        }
        let consumes = change.consumes().filter(|_| !is_planted(Bug::SenderForgotten));
        let sender = consumes.map(|message| message.sender.clone());
        aggregate(change).into_iter().chain(sender).any(|of| self.failed.contains(&of))
    }
}

fn aggregate(change: &Change) -> Option<Sender> {
    match change {
        Change::Task(change) => Some(Sender::Task(change.task.id)),
        Change::Lock(change) => Some(Sender::Lock(change.lock.name.clone())),
        _ => None,
    }
}
