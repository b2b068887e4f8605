//! Journals: the history of triggers, devices and rollouts, and the audit log. Entries are only added; the janitor deletes
//! those that were kept long enough.

use std::sync::Arc;

use windlass_core::{Millis, Name, Timestamp};

use super::Retention;

/// The longest that some entries are kept, whatever the settings say.
const DAY: Millis = Millis::from_secs(24 * 3600);

/// What a journal is about. Each has entries about subjects, which have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JournalKind {
    /// A trigger fired, or could not. The subject is the trigger.
    TriggerFired,
    /// A job of a device went on. The subject is the device.
    DeviceJob,
    /// A message came from a device. The subject is the device. Kept for a day.
    DeviceMessage,
    /// A rollout was changed, or could not start a task. The subject is the rollout.
    Rollout,
    /// Somebody changed something. The subject is the name of that. Written by [`Change::Audit`](super::Change::Audit).
    Audit,
}

impl JournalKind {
    /// All kinds, in the order in which they are exported.
    pub const ALL: [Self; 5] =
        [Self::TriggerFired, Self::DeviceJob, Self::DeviceMessage, Self::Rollout, Self::Audit];

    /// Its number in stores and archives, which stays the same in every version of the program.
    #[must_use]
    pub fn code(self) -> i64 {
        match self {
            Self::TriggerFired => 1,
            Self::DeviceJob => 2,
            Self::DeviceMessage => 3,
            Self::Rollout => 4,
            Self::Audit => 5,
        }
    }

    /// The kind with this number, if there is one.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The time of the newest entries that are not kept any more.
    #[must_use]
    pub fn until(self, retention: &Retention, now: Timestamp) -> Timestamp {
        let before = |kept: Millis| Timestamp(now.0.saturating_sub_unsigned(kept.0));
        match self {
            Self::TriggerFired | Self::DeviceJob | Self::Rollout => before(retention.logs),
            Self::Audit => before(retention.audit),
            Self::DeviceMessage => {
                let old = before(retention.logs.min(DAY));
                retention.messages_until.map_or(old, |until| old.max(until))
            }
        }
    }
}

/// An entry of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Of which journal.
    pub kind: JournalKind,
    /// What it is about.
    pub subject: Name,
    /// When it happened.
    pub at: Timestamp,
    /// What happened, as the engine has encoded it.
    pub body: Arc<[u8]>,
}

/// Where an entry is, and how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalSize {
    /// When it happened.
    pub at: Timestamp,
    /// Its number.
    pub number: u64,
    /// The bytes of its body.
    pub bytes: u64,
}

impl JournalSize {
    /// What has a place after which others are asked for.
    #[must_use]
    pub fn place(self) -> (Timestamp, u64) {
        (self.at, self.number)
    }
}

/// Which sizes are asked for: the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeQuery {
    /// Of which journal.
    pub kind: JournalKind,
    /// Only those of entries after this time and number.
    pub after: Option<(Timestamp, u64)>,
    /// The maximum number.
    pub limit: usize,
}

/// Which entries of a journal are asked for: the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalQuery {
    /// Of which journal.
    pub kind: JournalKind,
    /// Only those about this subject.
    pub subject: Option<Name>,
    /// Only those with numbers below this one.
    pub before: Option<u64>,
    /// The maximum number.
    pub limit: usize,
}
