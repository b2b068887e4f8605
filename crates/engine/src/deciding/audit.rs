//! Entries of the audit log: which items get one, and how they are stored.

use serde::{Deserialize, Serialize};
use windlass_core::{
    Actor, Name, Timestamp,
    planted::{Bug, is_planted},
};
use windlass_store::{Change, JournalEntry, JournalKind, RecordKind};

use crate::{
    AuditRecord, AuditedOperation,
    deciding::{
        inbox::{Item, Operation, Reply},
        part::{Part, Pending},
    },
};

/// The format of an entry in this version.
const FORMAT: u8 = 1;

/// The subject of entries about something whose name is not one of a subject.
const OTHER: &str = "other";

/// An entry as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    operation: Box<str>,
    by: Option<Actor>,
    address: Option<std::net::IpAddr>,
    kind: Box<str>,
    name: Box<str>,
}

/// Adds an entry behind each change that an audited operation asked for. Those who asked for a change that another one had
/// already decided on in this batch get an entry as well.
pub(super) fn add_entries(
    changes: Vec<Change>,
    parts: Vec<Part>,
    operations: &[Operation],
    at: Timestamp,
) -> (Vec<Change>, Vec<Part>) {
    if operations.iter().all(|operation| operation.audited.is_none()) || is_planted(Bug::AuditForgotten) {
        return (changes, parts);
    }
    let (mut all, mut of_all) = (Vec::with_capacity(changes.len()), Vec::with_capacity(parts.len()));
    for (change, part) in changes.into_iter().zip(parts) {
        let asked = part.pending.iter().filter(|pending| !is_refused(pending)).filter_map(|pending| {
            let operation = &operations[pending.place.0];
            let audited = operation.audited.as_ref()?;
            entry(audited, &operation.items[pending.place.1], at)
        });
        let entries: Vec<JournalEntry> = asked.collect();
        all.push(change);
        of_all.push(part);
        for entry in entries {
            all.push(Change::Audit(entry));
            of_all.push(Part { pending: Vec::new(), task: None, has_timer: false, sends: false, logs: None });
        }
    }
    (all, of_all)
}

/// Whether an item was refused in the state that the change leaves.
fn is_refused(pending: &Pending) -> bool {
    !matches!(pending.reply, None | Some(Reply::Task(_) | Reply::Alarm(_) | Reply::Lock { .. } | Reply::Done))
}

/// The entry about an item; `None` if the item changes nothing that an operator knows.
fn entry(audited: &AuditedOperation, item: &Item, at: Timestamp) -> Option<JournalEntry> {
    let (kind, name) = about(item)?;
    let AuditedOperation { operation, by, address } = audited.clone();
    let stored = Stored {
        operation,
        by,
        address: address.map(|address| address.to_canonical()),
        kind: kind.into(),
        name: name.as_str().into(),
    };
    let mut body = vec![FORMAT];
    // Writing plain values to memory cannot fail; such an entry would be left out.
    let _ = serde_json::to_writer(&mut body, &stored);
    let subject = Name::new(&name).or_else(|_| Name::new(OTHER)).ok()?;
    Some(JournalEntry { kind: JournalKind::Audit, subject, at, body: body.into() })
}

/// What an item changes: its kind and its name.
fn about(item: &Item) -> Option<(&'static str, String)> {
    Some(match item {
        Item::Submit(new) => ("task", new.task.id.to_string()),
        Item::Task { id, .. } => ("task", id.to_string()),
        Item::Alarm { id, .. } => ("alarm", id.to_string()),
        Item::Lock { name, .. } => ("lock", name.to_string()),
        Item::Change(Change::Flow(stored)) => ("flow", stored.flow.name.to_string()),
        Item::Change(Change::Queue(change)) => ("queue", change.name.to_string()),
        Item::Change(Change::Limit(change)) => ("limit", change.name.to_string()),
        // Whether a device is there follows from its messages.
        Item::Change(Change::Record(change)) if change.kind != RecordKind::Presence => {
            (change.kind.as_str(), change.name.to_string())
        }
        Item::Change(_) | Item::Lost { .. } | Item::Message(_) => return None,
    })
}

/// An entry as it was stored; `None` if it cannot be read.
pub(crate) fn record(number: u64, entry: &JournalEntry) -> Option<AuditRecord> {
    let (&FORMAT, json) = entry.body.split_first()? else { return None };
    let Stored { operation, by, address, kind, name } = serde_json::from_slice(json).ok()?;
    let operation = AuditedOperation { operation, by, address };
    Some(AuditRecord { number, at: entry.at, operation, kind, name })
}
