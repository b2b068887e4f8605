//! What most acts lack, kept apart so that those are small: a line of plain steps costs nothing of it.

use serde::{Deserialize, Serialize};

use crate::{Act, HeldLock, TaskId, Timestamp};

/// What most acts lack: it comes with keys, locks, child tasks, and times by which a worker must have begun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActExtras {
    /// Times an attempt asked to be tried later.
    pub postponements: u32,
    /// By when a worker must have taken the current attempt, as long as none was seen with it.
    pub start_by: Option<Timestamp>,
    /// What its attempts are counted under where a limit is by key.
    pub fairness: Option<Box<str>>,
    /// The child task that does it, the last one if there were several.
    pub child: Option<TaskId>,
    /// The locks it needs and has, by name; none once it is settled.
    pub locks: Vec<HeldLock>,
    /// How often it has asked for its locks.
    pub turn: u32,
}

/// Those of an act that has none.
static NONE: ActExtras =
    ActExtras { postponements: 0, start_by: None, fairness: None, child: None, locks: Vec::new(), turn: 0 };

impl Act {
    /// What most acts lack.
    #[must_use]
    pub fn extras(&self) -> &ActExtras {
        self.extras.as_deref().unwrap_or(&NONE)
    }

    /// Changes what most acts lack. It is kept only where something is left: equal acts are equal.
    pub(crate) fn change_extras(&mut self, change: impl FnOnce(&mut ActExtras)) {
        let mut extras = self.extras.take().unwrap_or_default();
        change(&mut extras);
        self.extras = (*extras != NONE).then_some(extras);
    }

    /// Times an attempt asked to be tried later.
    #[must_use]
    pub fn postponements(&self) -> u32 {
        self.extras().postponements
    }

    /// By when a worker must have taken the current attempt, as long as none was seen with it.
    #[must_use]
    pub fn start_by(&self) -> Option<Timestamp> {
        self.extras().start_by
    }

    /// What its attempts are counted under where a limit is by key.
    #[must_use]
    pub fn fairness(&self) -> Option<&str> {
        self.extras().fairness.as_deref()
    }

    /// The child task that does it, the last one if there were several.
    #[must_use]
    pub fn child(&self) -> Option<TaskId> {
        self.extras().child
    }

    /// The locks it needs and has, by name; none once it is settled.
    #[must_use]
    pub fn locks(&self) -> &[HeldLock] {
        &self.extras().locks
    }

    /// How often it has asked for its locks.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.extras().turn
    }
}
