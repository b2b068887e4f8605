//! The events of a task.

use serde::{Deserialize, Serialize};

use crate::{
    ActKey, Actor, Awaited, Cause, Ending, Failure, Json, LockName, Name, Stuck, StuckKind, TaskId, Timestamp,
};

/// One event of a task. Its number is its position in the task's history, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// The event itself.
    pub kind: EventKind,
}

/// The kind of an event. Variants are only ever added at the end: the stored history contains their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// The task was accepted.
    TaskAccepted,
    /// Its start time came.
    TaskStarted,
    /// An operator paused it.
    TaskPaused {
        /// The operator.
        by: Option<Actor>,
    },
    /// An operator resumed it.
    TaskResumed {
        /// The operator.
        by: Option<Actor>,
    },
    /// It started rolling back.
    TaskRollingBack {
        /// The reason.
        cause: Cause,
    },
    /// It waits for an operator.
    TaskStuck(Stuck),
    /// It no longer waits for an operator.
    TaskUnstuck,
    /// It ended.
    TaskEnded(Ending),
    /// An attempt became ready.
    ActReady {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// An attempt became ready in a paused task, or was taken out of the queue by the pause.
    ActParked {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// An attempt had been claimed. Recorded with its end; the event's time is the time of the claim.
    ActStarted {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// An attempt failed and another one will be made.
    ActRetrying {
        /// The execution.
        key: ActKey,
        /// Number of the attempt that failed.
        attempt: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// The failure.
        failure: Failure,
    },
    /// An attempt was postponed by its worker.
    ActPostponed {
        /// The execution.
        key: ActKey,
        /// Number of that attempt.
        attempt: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// The worker's message.
        message: Box<str>,
    },
    /// The worker that had the attempt is gone.
    ActLost {
        /// The execution.
        key: ActKey,
        /// Number of the attempt that was lost.
        attempt: u32,
    },
    /// An attempt was withdrawn from the queue because its task started rolling back.
    ActWithdrawn {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// Whether a worker may have had it, so that the step needs a rollback.
        touched: bool,
    },
    /// An attempt succeeded.
    ActSucceeded {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// Its result. Stored separately.
        #[serde(skip)]
        result: Option<Json>,
    },
    /// The execution failed without a further retry.
    ActFailed {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// The failure.
        failure: Failure,
    },
    /// Its deadline passed while a worker has the attempt.
    ActOverdue {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// The execution was skipped.
    ActSkipped {
        /// The execution.
        key: ActKey,
    },
    /// An operator resolved a step.
    ActResolved {
        /// The execution.
        key: ActKey,
        /// The decision.
        resolution: ResolutionKind,
        /// With `Done`: the result given by the operator. Stored separately.
        #[serde(skip)]
        result: Option<Json>,
        /// The operator.
        by: Option<Actor>,
    },
    /// An operator must see this: a message raises an alarm.
    AlarmRaised {
        /// The trouble and its step.
        stuck: Stuck,
    },
    /// The trouble of an alarm is resolved.
    AlarmCleared {
        /// The kind of the trouble.
        kind: StuckKind,
        /// The step it concerned.
        step: Option<usize>,
        /// Who resolved it.
        by: Option<Actor>,
    },
    /// A step that could start waits for a time before its first attempt.
    ActDelayed {
        /// The execution.
        key: ActKey,
        /// When the first attempt is ready.
        until: Timestamp,
    },
    /// The concurrency key of its attempts was computed.
    ActKeyed {
        /// The execution.
        key: ActKey,
        /// The concurrency key.
        fairness: Box<str>,
    },
    /// The step was fanned out into items.
    ActFanned {
        /// The execution.
        key: ActKey,
        /// The number of items.
        members: u32,
    },
    /// An attempt waits for something other than a worker.
    ActAwaiting {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// What it waits for.
        awaited: Awaited,
        /// The child task, if it waits for one.
        child: Option<TaskId>,
        /// The locks, if it waits for some.
        locks: Vec<LockName>,
    },
    /// An execution got a lock.
    ActLocked {
        /// The execution.
        key: ActKey,
        /// The lock.
        name: LockName,
        /// The fencing token.
        fence: u64,
    },
    /// A worker had claimed the attempt at the event's time. Recorded when `start_within` has passed, and for a step
    /// with a deadline when its first attempt has run for a while: after a restart of the server the start of the
    /// deadline is then known.
    ActTaken {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// A signal arrived that no step waits for yet.
    SignalKept {
        /// Its name.
        name: Name,
        /// Its parameters.
        params: Option<Box<str>>,
        /// Who sent it.
        by: Option<Actor>,
    },
    /// A step received its signal.
    SignalReceived {
        /// The execution.
        key: ActKey,
        /// The signal's name.
        name: Name,
        /// Who sent it.
        by: Option<Actor>,
    },
    /// An operator gave a step other parameters.
    StepAmended {
        /// The step.
        step: usize,
        /// The previous values of the same names, as the text of a JSON object.
        before: Box<str>,
        /// The new values.
        after: Box<str>,
        /// The operator.
        by: Option<Actor>,
    },
    /// An operator took a lock from an execution.
    ActUnlocked {
        /// The execution.
        key: ActKey,
        /// The lock.
        name: LockName,
        /// The fencing token under which it held the lock.
        fence: u64,
        /// The operator's reason.
        reason: Box<str>,
        /// The operator.
        by: Option<Actor>,
    },
    /// An operator started the task even though another one with the same unique key may be running.
    UniqueOverridden {
        /// The operator.
        by: Option<Actor>,
    },
    /// No answer to the attempt came over the broker in time: the answer or the module was lost.
    ActUnanswered {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// The attempt was reclaimed from its worker, which could not renew because of a fault of a server: no death is
    /// counted.
    ActReclaimed {
        /// The execution.
        key: ActKey,
        /// Number of the reclaimed attempt.
        attempt: u32,
    },
    /// The task joined its exclusive queue.
    QueueJoined,
    /// The task got its exclusive queue.
    QueueGranted {
        /// The fencing token.
        fence: u64,
    },
    /// An operator moved the exclusive queue past the task.
    QueueLost {
        /// The fencing token under which it had the queue.
        fence: u64,
        /// The operator's reason.
        reason: Box<str>,
        /// The operator.
        by: Option<Actor>,
    },
    /// The task is paused, and workers must stop the attempts that they have.
    TaskStopping {
        /// The operator.
        by: Option<Actor>,
    },
    /// An attempt ended because it was to stop, or its worker was lost while it was. Neither a failure nor a death is
    /// counted, and another attempt follows.
    ActStopped {
        /// The execution.
        key: ActKey,
        /// Number of the stopped attempt.
        attempt: u32,
    },
    /// The server may not run the task for a time: it is paused, and workers must stop the attempts that they have.
    TaskSuspended {
        /// The part of the server.
        by: Option<Actor>,
    },
    /// The child task succeeded, and its result cannot be used. The child task is rolled back, and the step fails when
    /// that has ended.
    ActResultDropped {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// The failure of the step.
        failure: Failure,
    },
}

/// An operator's decision about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResolutionKind {
    /// Try again.
    Retry,
    /// Skip the step.
    Skip,
    /// It was executed by hand.
    Done,
    /// Roll the task back.
    Rollback,
}

impl EventKind {
    /// The execution it concerns, if any.
    #[must_use]
    pub fn act(&self) -> Option<ActKey> {
        match self {
            Self::TaskAccepted
            | Self::TaskStarted
            | Self::TaskPaused { .. }
            | Self::TaskStopping { .. }
            | Self::TaskSuspended { .. }
            | Self::TaskResumed { .. }
            | Self::TaskRollingBack { .. }
            | Self::TaskStuck(_)
            | Self::TaskUnstuck
            | Self::TaskEnded(_)
            | Self::AlarmRaised { .. }
            | Self::AlarmCleared { .. }
            | Self::SignalKept { .. }
            | Self::UniqueOverridden { .. }
            | Self::QueueJoined
            | Self::QueueGranted { .. }
            | Self::QueueLost { .. }
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
            | Self::ActStopped { key, .. }
            | Self::ActResultDropped { key, .. }
            | Self::SignalReceived { key, .. } => Some(*key),
        }
    }
}
