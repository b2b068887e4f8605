//! What happened to a task.

use serde::{Deserialize, Serialize};

use crate::{ActKey, Actor, Cause, Ending, Failure, Json, Stuck, StuckKind, Timestamp};

/// One thing that happened to a task. Its number is its place in the task's history, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
}

/// What happened. Variants are only ever added at the end: the stored history holds their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// The task was taken in.
    TaskAccepted,
    /// Its start time came.
    TaskStarted,
    /// A person holds it.
    TaskPaused {
        /// Who.
        by: Option<Actor>,
    },
    /// A person let it go on.
    TaskResumed {
        /// Who.
        by: Option<Actor>,
    },
    /// It goes backward from now on.
    TaskRollingBack {
        /// Why.
        cause: Cause,
    },
    /// It waits for a person.
    TaskStuck(Stuck),
    /// It waits for that person no more.
    TaskUnstuck,
    /// It ended.
    TaskEnded(Ending),
    /// An attempt became ready.
    ActReady {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// An attempt became ready in a paused task, or lost its place in the queue to the pause.
    ActParked {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// An attempt had been handed out. Recorded with its end; the event's time is when it was handed out.
    ActStarted {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// An attempt failed and another one will be made.
    ActRetrying {
        /// The act.
        key: ActKey,
        /// Number of the attempt that failed.
        attempt: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// Why it failed.
        failure: Failure,
    },
    /// An attempt asked to be tried later.
    ActPostponed {
        /// The act.
        key: ActKey,
        /// Number of the attempt that asked.
        attempt: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// Why.
        message: Box<str>,
    },
    /// The worker that had the attempt is gone.
    ActLost {
        /// The act.
        key: ActKey,
        /// Number of the attempt that was lost.
        attempt: u32,
    },
    /// An attempt was taken back from the queue because its task turned around.
    ActWithdrawn {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// Whether a worker may have had it, so that the step counts as touched.
        touched: bool,
    },
    /// It is done.
    ActSucceeded {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// What it returned. Stored apart.
        #[serde(skip)]
        result: Option<Json>,
    },
    /// It failed for good.
    ActFailed {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// Why.
        failure: Failure,
    },
    /// Its deadline passed while a worker has the attempt.
    ActOverdue {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// It is passed over.
    ActSkipped {
        /// The act.
        key: ActKey,
    },
    /// A person settled a step.
    ActResolved {
        /// The act.
        key: ActKey,
        /// How.
        resolution: ResolutionKind,
        /// With `Done`: what it would have returned. Stored apart.
        #[serde(skip)]
        result: Option<Json>,
        /// Who.
        by: Option<Actor>,
    },
    /// A person must see this: an alarm is on its way.
    AlarmRaised {
        /// What happened, to which step.
        stuck: Stuck,
    },
    /// What an alarm was raised for is settled.
    AlarmCleared {
        /// What it was raised for.
        kind: StuckKind,
        /// The step it was about.
        step: Option<usize>,
        /// Who settled it.
        by: Option<Actor>,
    },
}

/// How a person settled a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResolutionKind {
    /// It is tried again.
    Retry,
    /// It is passed over.
    Skip,
    /// It was done by hand.
    Done,
    /// The task is rolled back.
    Rollback,
}

impl EventKind {
    /// The act it is about, if it is about one.
    #[must_use]
    pub fn act(&self) -> Option<ActKey> {
        match self {
            Self::TaskAccepted
            | Self::TaskStarted
            | Self::TaskPaused { .. }
            | Self::TaskResumed { .. }
            | Self::TaskRollingBack { .. }
            | Self::TaskStuck(_)
            | Self::TaskUnstuck
            | Self::TaskEnded(_)
            | Self::AlarmRaised { .. }
            | Self::AlarmCleared { .. } => None,
            Self::ActReady { key, .. }
            | Self::ActParked { key, .. }
            | Self::ActStarted { key, .. }
            | Self::ActRetrying { key, .. }
            | Self::ActPostponed { key, .. }
            | Self::ActLost { key, .. }
            | Self::ActWithdrawn { key, .. }
            | Self::ActSucceeded { key, .. }
            | Self::ActFailed { key, .. }
            | Self::ActOverdue { key, .. }
            | Self::ActSkipped { key }
            | Self::ActResolved { key, .. } => Some(*key),
        }
    }
}
