//! Changes of one commit that are built on one another: when one fails, so do those that were decided on what it makes, and
//! what the audit log would say of it.
//!
//! Versions do not show that: another change may have brought the aggregate to the same version by other events.

use std::collections::BTreeSet;

use windlass_core::{
    AlarmId, Name,
    planted::{Bug, is_planted},
};

use super::commit::{ClaimView, RowView, outcome};
use crate::port::{Change, Outcome, RecordKind, Sender};

/// What failed of a commit by now.
#[derive(Debug, Default)]
pub struct BuiltOn {
    failed: BTreeSet<Aggregate>,
    /// Whether the change before the next one is committed.
    is_committed: bool,
}

/// What has a version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Aggregate {
    Sender(Sender),
    Alarm(AlarmId),
    Record(RecordKind, Name),
}

impl BuiltOn {
    /// The outcome of the next change. A change is a conflict if an earlier change has failed that it builds on: one of the
    /// same task, lock, alarm or record, or the one that was to send the message that it consumes.
    /// An entry of the audit log has the fate of the change before it.
    pub fn decide(&mut self, change: &Change, rows: &impl RowView, claims: &impl ClaimView) -> Outcome {
        let is_alone = matches!(change, Change::Audit(_)) && !self.is_committed;
        let has_failed = is_alone && !is_planted(Bug::AuditedAnyway) || self.has_failed_before(change);
        let outcome = if has_failed { Outcome::Conflict } else { outcome(change, rows, claims) };
        self.is_committed = outcome == Outcome::Committed;
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
        let sender = consumes.map(|message| Aggregate::Sender(message.sender.clone()));
        aggregate(change).into_iter().chain(sender).any(|of| self.failed.contains(&of))
    }
}

fn aggregate(change: &Change) -> Option<Aggregate> {
    match change {
        Change::Task(change) => Some(Aggregate::Sender(Sender::Task(change.task.id))),
        Change::Lock(change) => Some(Aggregate::Sender(Sender::Lock(change.lock.name.clone()))),
        Change::Alarm(change) => Some(Aggregate::Alarm(change.alarm.as_ref()?.id.clone())),
        Change::Record(change) => Some(Aggregate::Record(change.kind, change.name.clone())),
        _ => None,
    }
}
