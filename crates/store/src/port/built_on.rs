//! Changes of one commit that are built on one another: when one fails, so do those that were decided on what it makes.
//!
//! Versions do not tell: what came in its place may have brought the aggregate to the same version by other events.

use std::collections::BTreeSet;

use super::{Change, Outcome, Sender};

/// What failed of a commit by now.
#[derive(Debug, Default)]
pub struct BuiltOn {
    failed: BTreeSet<Sender>,
}

impl BuiltOn {
    /// The outcome of the next change: what `decide` says, unless an earlier change of the same task or lock has failed.
    /// It is a conflict then.
    pub fn outcome(&mut self, change: &Change, decide: impl FnOnce() -> Outcome) -> Outcome {
        // Nearly always nothing has failed.
        if !self.failed.is_empty() && aggregate(change).is_some_and(|of| self.failed.contains(&of)) {
            return Outcome::Conflict;
        }
        let outcome = decide();
        if outcome != Outcome::Committed {
            self.failed.extend(aggregate(change));
        }
        outcome
    }
}

fn aggregate(change: &Change) -> Option<Sender> {
    match change {
        Change::Task(change) => Some(Sender::Task(change.task.id)),
        Change::Lock(change) => Some(Sender::Lock(change.lock.name.clone())),
        _ => None,
    }
}
