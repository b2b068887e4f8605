//! What triggers did: entries of a journal.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_core::{Actor, Name, TaskId, Timestamp};
use windlass_store::{Change, JournalEntry, JournalKind, Leadership};

use crate::{Engine, EngineError, deciding::inbox::Item};

/// The format of an entry in this version.
const FORMAT: u8 = 1;

/// Something that a trigger did, or did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerEntry {
    /// What fired it.
    pub cause: TriggerCause,
    /// The instant of its schedule.
    pub instant: Option<Timestamp>,
    /// What it did.
    pub outcome: TriggerOutcome,
    /// The number of instants before this one that were missed.
    pub missed: u64,
    /// The tasks that it started, or should have.
    pub tasks: Vec<TriggerEntryTask>,
    /// Who fired it, if an operator did.
    pub by: Option<Actor>,
}

/// What fires a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TriggerCause {
    /// Its schedule.
    Schedule,
    /// A request to its address.
    Request,
    /// A message of a queue, or of the network of devices.
    Message,
    /// An operator.
    Operator,
}

/// What a trigger did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TriggerOutcome {
    /// It fired.
    Fired,
    /// Tasks of an earlier instant ran.
    Skipped,
    /// Tasks of an earlier instant ran, and it waits for their end.
    Queued,
    /// No server was there in time.
    Missed,
}

/// A task that a trigger started, or should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerEntryTask {
    /// Its flow.
    pub flow: Name,
    /// The task; `None` = it was refused.
    pub task: Option<TaskId>,
    /// Why it was refused.
    pub problem: Option<Box<str>>,
}

impl TriggerEntry {
    /// An entry about an instant, without tasks.
    pub(crate) fn of_instant(instant: Timestamp, outcome: TriggerOutcome) -> Self {
        let (cause, instant) = (TriggerCause::Schedule, Some(instant));
        Self { cause, instant, outcome, missed: 0, tasks: Vec::new(), by: None }
    }
}

/// An entry as it is stored.
pub(super) fn decode(body: &[u8]) -> Option<TriggerEntry> {
    let (&FORMAT, json) = body.split_first()? else { return None };
    serde_json::from_slice(json).ok()
}

impl Engine {
    /// Adds an entry to the history of a trigger. `led`: the caller is the leader of a service.
    pub(crate) async fn note_trigger(
        &self,
        led: Option<Leadership>,
        trigger: &Name,
        entry: &TriggerEntry,
        at: Timestamp,
    ) -> Result<(), EngineError> {
        let mut body = vec![FORMAT];
        // Writing plain values to memory cannot fail; such an entry would be left out.
        let _ = serde_json::to_writer(&mut body, entry);
        let (kind, subject, body) = (JournalKind::TriggerFired, trigger.clone(), Arc::from(body));
        let change = Change::Journal(vec![JournalEntry { kind, subject, at, body }]);
        self.inbox.decide_as(led, vec![Item::Change(change)]).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_first_format_is_read() {
        let stored = br#"{"cause":"Schedule","instant":60000,"outcome":"Fired","missed":3,"tasks":[{"flow":"f","task":340282366920938463463374607431768211455,"problem":null},{"flow":"g","task":null,"problem":"there is no flow g"}],"by":null}"#;
        let entry = decode(&[&[1], &stored[..]].concat()).unwrap();
        assert_eq!(entry.tasks[0].task, Some(TaskId(u128::MAX)));
        assert_eq!(serde_json::to_vec(&entry).unwrap(), stored);
        assert_eq!(decode(&[2, b'{', b'}']), None, "a later format");
        assert_eq!(decode(&[]), None);
    }
}
