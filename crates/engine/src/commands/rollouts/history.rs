//! What happened to rollouts: entries of a journal.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_core::{Actor, Name, Timestamp};
use windlass_store::{Change, JournalEntry, JournalKind, JournalQuery, Leadership};

use crate::{Engine, EngineError, deciding::inbox::Item};

/// The format of an entry in this version.
const FORMAT: u8 = 1;

/// Something that happened to a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutEntry {
    /// What.
    pub event: RolloutEvent,
    /// Who did it, if an operator did.
    pub by: Option<Actor>,
    /// The device that it is about.
    pub device: Option<Name>,
    /// The reason of the operator, or what happened.
    pub message: Option<Box<str>>,
}

/// What happened to a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutEvent {
    /// It was started.
    Started,
    /// An operator paused it.
    Paused,
    /// An operator resumed it.
    Resumed,
    /// An operator or a threshold aborted it.
    Aborted,
    /// The task of a device was refused.
    Refused,
    /// The tasks that ran at the abort have ended, and those that succeeded are rolled back.
    RollingBack,
    /// It ended.
    Ended,
    /// An operator removed it.
    Removed,
}

impl RolloutEntry {
    /// An entry without details.
    pub(crate) fn new(event: RolloutEvent) -> Self {
        Self { event, by: None, device: None, message: None }
    }
}

/// An entry as it is stored.
fn decode(body: &[u8]) -> Option<RolloutEntry> {
    let (&FORMAT, json) = body.split_first()? else { return None };
    serde_json::from_slice(json).ok()
}

impl Engine {
    /// Adds entries to the history of a rollout. `led`: the caller is the leader of a service.
    pub(crate) async fn note_rollout(
        &self,
        led: Option<Leadership>,
        rollout: &Name,
        entries: &[RolloutEntry],
        at: Timestamp,
    ) -> Result<(), EngineError> {
        if entries.is_empty() {
            return Ok(());
        }
        let entry = |entry| {
            let mut body = vec![FORMAT];
            // Writing plain values to memory cannot fail; such an entry would be left out.
            let _ = serde_json::to_writer(&mut body, entry);
            let (kind, subject, body) = (JournalKind::Rollout, rollout.clone(), Arc::from(body));
            JournalEntry { kind, subject, at, body }
        };
        let change = Change::Journal(entries.iter().map(entry).collect());
        self.inbox.decide_as(led, vec![Item::Change(change)]).await?;
        Ok(())
    }

    /// What happened to a rollout, newest first, each with its number. `before`: only entries with lower numbers.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn rollout_history(
        &self,
        name: &Name,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, Timestamp, RolloutEntry)>, EngineError> {
        let query = JournalQuery { kind: JournalKind::Rollout, subject: Some(name.clone()), before, limit };
        let entries = self.on_disk(|| self.store.journal(&query)).await?;
        let read = |(number, entry): (u64, JournalEntry)| Some((number, entry.at, decode(&entry.body)?));
        Ok(entries.into_iter().filter_map(read).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_first_format_is_read() {
        let stored = br#"{"event":"Refused","by":null,"device":"valve-7","message":"there is no flow f"}"#;
        let entry = decode(&[&[1], &stored[..]].concat()).unwrap();
        assert_eq!(entry.event, RolloutEvent::Refused);
        assert_eq!(serde_json::to_vec(&entry).unwrap(), stored);
        assert_eq!(decode(&[2, b'{', b'}']), None, "a later format");
        assert_eq!(decode(&[]), None);
    }
}
