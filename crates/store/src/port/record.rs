//! Records: small values with a name and a version, such as triggers and devices. A store keeps them, checks their versions,
//! and does not know what is in them.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use windlass_core::{Name, Timestamp};

/// The largest value of a record, in bytes.
pub const RECORD_BYTES_MAX: usize = 256 << 10;

/// What a record is. Names of different kinds have nothing to do with one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// A trigger: what starts flows, when, and how far it has come.
    Trigger,
    /// A device, as it was declared.
    Device,
    /// Whether a device is there, as it was last heard.
    Presence,
    /// A flow that is started for each device of a fleet, and how far it has come.
    Rollout,
    /// An access token: who may do what at the HTTP interface. It has the hash of a secret, not the secret.
    AccessToken,
}

impl RecordKind {
    /// All kinds, in the order in which they are exported.
    pub const ALL: [Self; 5] =
        [Self::Trigger, Self::Device, Self::Presence, Self::Rollout, Self::AccessToken];

    /// Its number in stores and archives, which stays the same in every version of the program.
    #[must_use]
    pub fn code(self) -> i64 {
        match self {
            Self::Trigger => 1,
            Self::Device => 2,
            Self::Presence => 3,
            Self::Rollout => 4,
            Self::AccessToken => 5,
        }
    }

    /// The kind with this number, if there is one.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Its name in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Device => "device",
            Self::Presence => "presence",
            Self::Rollout => "rollout",
            Self::AccessToken => "access token",
        }
    }
}

/// A record as a store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub kind: RecordKind,
    /// Its name; no other record of the kind has it.
    pub name: Name,
    /// Grows with every change.
    pub version: u64,
    /// Its value, as the engine has encoded it; at most [`RECORD_BYTES_MAX`].
    pub body: Arc<[u8]>,
}

impl Record {
    /// Of all records those of a kind with names above `after`, by name.
    pub(crate) fn page<'r>(
        all: &'r BTreeMap<(RecordKind, Name), Self>,
        kind: RecordKind,
        after: Option<&Name>,
    ) -> impl Iterator<Item = &'r Self> {
        let of_kind = move |record: &&Self| record.kind == kind;
        let page = match after {
            Some(after) => all.range((Bound::Excluded((kind, after.clone())), Bound::Unbounded)),
            None => all.range(..),
        };
        page.map(|(_, record)| record).skip_while(move |record| !of_kind(record)).take_while(of_kind)
    }
}

/// A record is created, updated or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// What it is.
    pub kind: RecordKind,
    /// Its name.
    pub name: Name,
    /// The version that it must have now; 0 if no record may have this name.
    pub before: u64,
    /// The state of the store in which it was decided, as [`Store::generation`](super::Store::generation) returned before the
    /// record was read.
    pub generation: u64,
    /// The version that it has then; greater than `before`.
    pub version: u64,
    /// Its value; `None` deletes it.
    pub body: Option<Arc<[u8]>>,
}

impl RecordChange {
    /// A new record, in the first generation. Its versions begin at the time, so that one which was deleted before has had
    /// lower ones.
    #[must_use]
    pub fn create(kind: RecordKind, name: Name, body: Arc<[u8]>, now: Timestamp) -> Self {
        let version = u64::try_from(now.0).unwrap_or(0).max(1);
        Self { kind, name, before: 0, generation: 0, version, body: Some(body) }
    }

    /// Another value of a record, in the first generation.
    #[must_use]
    pub fn update(record: &Record, body: Arc<[u8]>) -> Self {
        Self { body: Some(body), ..Self::delete(record) }
    }

    /// Deletes a record, in the first generation.
    #[must_use]
    pub fn delete(record: &Record) -> Self {
        let Record { kind, name, version, .. } = record;
        let (kind, name, before) = (*kind, name.clone(), *version);
        Self { kind, name, before, generation: 0, version: before + 1, body: None }
    }

    /// The same, decided in this generation of the store.
    #[must_use]
    pub fn decided_in(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// The record that it leaves, if it leaves one.
    #[must_use]
    pub fn record(&self) -> Option<Record> {
        let body = self.body.clone()?;
        Some(Record { kind: self.kind, name: self.name.clone(), version: self.version, body })
    }
}
