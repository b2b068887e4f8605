//! What happened to a task.

use serde::{Deserialize, Serialize};

use crate::{
    ActKey, Actor, Awaited, Cause, Ending, Failure, Json, LockName, Name, Stuck, StuckKind, TaskId, Timestamp,
};

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
    /// A step whose turn has come waits for a time before its first attempt.
    ActDelayed {
        /// The act.
        key: ActKey,
        /// When the first attempt is ready.
        until: Timestamp,
    },
    /// What its attempts are counted under where a limit is by key.
    ActKeyed {
        /// The act.
        key: ActKey,
        /// The key.
        fairness: Box<str>,
    },
    /// Its members do it from now on.
    ActFanned {
        /// The act.
        key: ActKey,
        /// How many there are.
        members: u32,
    },
    /// An attempt waits for something else than a worker.
    ActAwaiting {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// What for.
        awaited: Awaited,
        /// The child task, where it waits for one.
        child: Option<TaskId>,
        /// The locks, where it waits for some.
        locks: Vec<LockName>,
    },
    /// It has a lock.
    ActLocked {
        /// The act.
        key: ActKey,
        /// Which lock.
        name: LockName,
        /// The fencing token.
        fence: u64,
    },
    /// A worker had taken the attempt at the event's time. Recorded when `start_within` is over, and for a step
    /// with a deadline when its first attempt has run for a while: a restart of the server then knows when the
    /// deadline began.
    ActTaken {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// A signal came that no step waits for yet.
    SignalKept {
        /// Its name.
        name: Name,
        /// What came with it.
        params: Option<Box<str>>,
        /// Who sent it.
        by: Option<Actor>,
    },
    /// A step got the signal it waited for.
    SignalReceived {
        /// The act.
        key: ActKey,
        /// The signal's name.
        name: Name,
        /// Who sent it.
        by: Option<Actor>,
    },
    /// A person gave a step other parameters.
    StepAmended {
        /// The step.
        step: usize,
        /// Those of the same names as before, as the text of a JSON object.
        before: Box<str>,
        /// Those it gets from now on.
        after: Box<str>,
        /// Who.
        by: Option<Actor>,
    },
    /// A person took a lock from it.
    ActUnlocked {
        /// The act.
        key: ActKey,
        /// Which lock.
        name: LockName,
        /// The fencing token under which it had it.
        fence: u64,
        /// Why.
        reason: Box<str>,
        /// Who.
        by: Option<Actor>,
    },
    /// An operator started the task although another one with the same unique key may be running.
    UniqueOverridden {
        /// Who.
        by: Option<Actor>,
    },
    /// No answer to the attempt came over the broker in time: the answer is lost, or the module.
    ActUnanswered {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// The attempt was taken from its worker, which could not be heard because of a fault of a server: no death is counted.
    ActReclaimed {
        /// The act.
        key: ActKey,
        /// Number of the attempt that was taken from its worker.
        attempt: u32,
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
            | Self::AlarmCleared { .. }
            | Self::SignalKept { .. }
            | Self::UniqueOverridden { .. }
            | Self::StepAmended { .. } => None,
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
            | Self::ActResolved { key, .. }
            | Self::ActDelayed { key, .. }
            | Self::ActKeyed { key, .. }
            | Self::ActFanned { key, .. }
            | Self::ActAwaiting { key, .. }
            | Self::ActLocked { key, .. }
            | Self::ActTaken { key, .. }
            | Self::ActUnlocked { key, .. }
            | Self::ActUnanswered { key, .. }
            | Self::ActReclaimed { key, .. }
            | Self::SignalReceived { key, .. } => Some(*key),
        }
    }
}
