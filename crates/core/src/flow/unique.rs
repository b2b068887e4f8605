//! Duplicate tasks of a flow.

use serde::{Deserialize, Serialize};

use crate::{Expression, Millis};

/// Which tasks of a flow are duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Unique {
    /// The unique key: tasks whose submitted parameters give the same value are duplicates.
    pub key: Expression,
    /// How long a task prevents others with its unique key.
    pub during: During,
    /// The reply to a submit while a task prevents it.
    pub on_conflict: OnConflict,
}

/// How long a task prevents others with its unique key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    /// Until its first step is handed out.
    Pending,
    /// Until it ends.
    Running,
    /// Until this long after it ended.
    Finished(Millis),
}

/// The reply to a submit whose unique key belongs to another task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// That task.
    Return,
    /// A refusal that names that task.
    Fail,
}

/// The stored form: later additions are variants at the end, so that older stored flows can still be read.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    key: Expression,
    during: StoredDuring,
}

#[derive(Clone, Serialize, Deserialize)]
enum StoredDuring {
    Pending,
    Running,
    Finished(Millis),
    Failing(Box<StoredDuring>),
}

impl From<Unique> for Stored {
    fn from(unique: Unique) -> Self {
        let during = match unique.during {
            During::Pending => StoredDuring::Pending,
            During::Running => StoredDuring::Running,
            During::Finished(span) => StoredDuring::Finished(span),
        };
        let during = match unique.on_conflict {
            OnConflict::Return => during,
            OnConflict::Fail => StoredDuring::Failing(Box::new(during)),
        };
        Self { key: unique.key, during }
    }
}

impl From<Stored> for Unique {
    fn from(stored: Stored) -> Self {
        let (during, on_conflict) = match stored.during {
            StoredDuring::Failing(during) => (*during, OnConflict::Fail),
            during => (during, OnConflict::Return),
        };
        let during = match during {
            StoredDuring::Pending => During::Pending,
            StoredDuring::Finished(span) => During::Finished(span),
            // A `Failing` within another one is never written.
            StoredDuring::Running | StoredDuring::Failing(_) => During::Running,
        };
        Self { key: stored.key, during, on_conflict }
    }
}
