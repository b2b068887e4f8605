//! Which tasks of a flow are the same.

use serde::{Deserialize, Serialize};

use crate::{Expression, Millis};

/// Which tasks of a flow are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Unique {
    /// The unique key: tasks for whose submitted parameters this has the same value are the same.
    pub key: Expression,
    /// For how long a task prevents others with its unique key.
    pub during: During,
    /// What a submit gets while a task prevents it.
    pub on_conflict: OnConflict,
}

/// For how long a task prevents others with its unique key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    /// Until its first step is handed out.
    Pending,
    /// Until it ends.
    Running,
    /// Until this long after it ended.
    Finished(Millis),
}

/// What a submit gets whose unique key another task has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// That task.
    Return,
    /// A refusal that names that task.
    Fail,
}

/// How it is stored: what came later stands in variants at the end, so that what was stored before reads as it did.
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
            // Nothing writes a `Failing` within another one.
            StoredDuring::Running | StoredDuring::Failing(_) => During::Running,
        };
        Self { key: stored.key, during, on_conflict }
    }
}
