//! Each entry of the audit log stands behind the change that it is about, in the same commit, and no change of an operator
//! lacks one.

use windlass_core::Name;
use windlass_store::{Change, RecordKind};

use super::Invariant;
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

const NAME: &str = "audit log";

#[derive(Default)]
pub(super) struct AuditLog {
    /// What the last change was about.
    last: Option<String>,
    /// A change that only operators make, until its entry is seen.
    unaudited: Option<Name>,
    /// An import writes such changes as well.
    imports: bool,
}

impl Invariant for AuditLog {
    fn see(&mut self, seen: &Seen, _: &Truth, world: &World) -> Result<(), Violation> {
        let change = match seen {
            Seen::Written(change) => change,
            Seen::Moved(_) => {
                *self = Self { imports: true, ..Self::default() };
                return Ok(());
            }
            _ => return Ok(()),
        };
        if let Change::Audit(entry) = change {
            world.count("audit entry");
            if self.last.as_deref() != Some(entry.subject.as_str()) {
                let message = format!("an entry about {} stands behind {:?}", entry.subject, self.last);
                return Err(Violation::new(NAME, message));
            }
            self.unaudited = None;
            return Ok(());
        }
        if let Some(name) = self.unaudited.take() {
            return Err(Violation::new(NAME, format!("no entry is about the change of {name}")));
        }
        self.last = about(change);
        if !self.imports {
            self.unaudited = by_operators(change);
        }
        Ok(())
    }
}

/// What an entry about this change names.
fn about(change: &Change) -> Option<String> {
    Some(match change {
        Change::Task(change) => change.task.id.to_string(),
        Change::Alarm(change) => change.alarm.as_ref()?.id.to_string(),
        Change::Lock(change) => change.lock.name.to_string(),
        Change::Flow(stored) => stored.flow.name.to_string(),
        Change::Queue(change) => change.name.to_string(),
        Change::Limit(change) => change.name.to_string(),
        Change::Record(change) if change.kind != RecordKind::Presence => change.name.to_string(),
        _ => return None,
    })
}

/// The name of what nobody but an operator changes.
fn by_operators(change: &Change) -> Option<Name> {
    match change {
        Change::Queue(change) => Some(change.name.clone()),
        Change::Limit(change) => Some(change.name.clone()),
        _ => None,
    }
}
