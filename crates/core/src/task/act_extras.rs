//! Fields that most executions do not need, stored separately so that plain executions stay small.

use serde::{Deserialize, Serialize};

use crate::{Act, HeldLock, TaskId, Timestamp};

/// Fields that most executions do not need: for concurrency keys, locks, child tasks, and `start_within`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActExtras {
    /// How often an attempt was postponed by its worker.
    pub postponements: u32,
    /// When a worker must have started the current attempt, as long as no worker is known to have it.
    pub start_by: Option<Timestamp>,
    /// The concurrency key under which limits count its attempts.
    pub fairness: Option<Box<str>>,
    /// The child task that executes it, the last one if there were several.
    pub child: Option<TaskId>,
    /// The locks it needs and holds, by name; none once it is settled.
    pub locks: Vec<HeldLock>,
    /// How often it has requested its locks.
    pub turn: u32,
}

/// The extras of an execution that has none.
static NONE: ActExtras =
    ActExtras { postponements: 0, start_by: None, fairness: None, child: None, locks: Vec::new(), turn: 0 };

impl Act {
    /// The fields that most executions do not need.
    #[must_use]
    pub fn extras(&self) -> &ActExtras {
        self.extras.as_deref().unwrap_or(&NONE)
    }

    /// Changes these fields. They are kept only if one is set, so that equal executions compare equal.
    pub(crate) fn change_extras(&mut self, change: impl FnOnce(&mut ActExtras)) {
        let mut extras = self.extras.take().unwrap_or_default();
        change(&mut extras);
        self.extras = (*extras != NONE).then_some(extras);
    }

    /// How often an attempt was postponed by its worker.
    #[must_use]
    pub fn postponements(&self) -> u32 {
        self.extras().postponements
    }

    /// When a worker must have started the current attempt, as long as no worker is known to have it.
    #[must_use]
    pub fn start_by(&self) -> Option<Timestamp> {
        self.extras().start_by
    }

    /// The concurrency key under which limits count its attempts.
    #[must_use]
    pub fn fairness(&self) -> Option<&str> {
        self.extras().fairness.as_deref()
    }

    /// The child task that executes it, the last one if there were several.
    #[must_use]
    pub fn child(&self) -> Option<TaskId> {
        self.extras().child
    }

    /// The locks it needs and holds, by name; none once it is settled.
    #[must_use]
    pub fn locks(&self) -> &[HeldLock] {
        &self.extras().locks
    }

    /// How often it has requested its locks.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.extras().turn
    }
}
