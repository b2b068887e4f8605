//! The commands of a task.

use crate::{ActKey, Actor, ChildEnd, Failure, Json, LockName, Millis, Name, TaskId, Timestamp};

/// A command to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Accepts the task; the first command of every task.
    Accept {
        /// Steps that the original task has completed, with their results, if this task is a rerun.
        done: Vec<(usize, Option<Json>)>,
        /// Start it even if a task with the same unique key exists.
        overrides_unique: bool,
        /// The requester.
        by: Option<Actor>,
    },
    /// A worker reports the outcome of an attempt.
    Report(Report),
    /// The worker that had an attempt is gone.
    Lose(Attempt),
    /// The worker that had an attempt could not renew because of a fault of a server.
    Reclaim(Attempt),
    /// An attempt ran longer than its timeout, and its worker did not end it.
    TimeOut(Attempt),
    /// A worker has had the attempt for a while: the time of the claim must be recorded, because a deadline starts
    /// there.
    Taken(Attempt),
    /// An attempt of a paused task has no claim any more: it was released, or no worker named it after a restart.
    Park(Attempt),
    /// A timer of the task is due.
    Wake(Wakeup),
    /// An operator cancels it; steps that may have had effects are rolled back.
    Cancel {
        /// The operator.
        by: Option<Actor>,
    },
    /// An operator pauses it between attempts.
    Pause {
        /// The operator.
        by: Option<Actor>,
    },
    /// An operator pauses it, and workers stop the attempts that they have. Each of these is made again after the
    /// resume, without counting as a failure or a death.
    Stop {
        /// The operator.
        by: Option<Actor>,
    },
    /// The server may not run it for a time: it is paused, and workers stop the attempts that they have, as by
    /// [`Stop`](Self::Stop). A task that an operator has paused stays paused by the operator.
    Suspend {
        /// The part of the server.
        by: Option<Actor>,
    },
    /// The server may run it again. Only ends a pause by [`Suspend`](Self::Suspend).
    Continue {
        /// The part of the server.
        by: Option<Actor>,
    },
    /// An operator resumes it.
    Resume {
        /// The operator.
        by: Option<Actor>,
    },
    /// A signal is sent.
    Signal {
        /// Its name.
        name: Name,
        /// The result of the step that waits for it.
        params: Option<Json>,
        /// Whether it is kept if no step waits for it yet.
        keep: bool,
        /// The sender.
        by: Option<Actor>,
    },
    /// An operator resolves a stuck or held step.
    Resolve {
        /// Index of the step.
        step: usize,
        /// The decision.
        resolution: Resolution,
        /// The operator.
        by: Option<Actor>,
    },
    /// An operator moves its exclusive queue past it.
    SkipQueue {
        /// The operator's reason.
        reason: Box<str>,
        /// The operator.
        by: Option<Actor>,
    },
    /// A lock was granted to an execution.
    Granted {
        /// The execution; [`ActKey::TASK`] for the exclusive queue of the task.
        key: ActKey,
        /// The number of the execution's request for its locks.
        turn: u32,
        /// The lock.
        name: LockName,
        /// The fencing token.
        fence: u64,
    },
    /// An operator took a lock from an execution.
    Seized {
        /// The execution; [`ActKey::TASK`] for the exclusive queue of the task.
        key: ActKey,
        /// The lock.
        name: LockName,
        /// The fencing token under which the execution held it.
        fence: u64,
        /// The operator's reason.
        reason: Box<str>,
        /// The operator.
        by: Option<Actor>,
    },
    /// The child task of a step has ended.
    ChildEnded {
        /// The step, forward or back.
        key: ActKey,
        /// The child task.
        child: TaskId,
        /// Its result.
        end: ChildEnd,
    },
    /// The parent task started rolling back.
    CancelForParent,
    /// The parent task rolls back the step that this task executed.
    UndoForParent,
    /// A rollout was aborted: roll the task back, although it succeeded.
    RollBack {
        /// The rollout.
        rollout: Name,
    },
    /// The engine found that a transition would break an invariant: hold the task.
    Hold {
        /// The broken invariant.
        message: Box<str>,
    },
}

/// One attempt of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The execution.
    pub key: ActKey,
    /// Number of the attempt.
    pub number: u32,
    /// When it was claimed, if known.
    pub started_at: Option<Timestamp>,
}

/// A report of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The attempt.
    pub attempt: Attempt,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Completed, with its result.
    Succeeded(Option<Json>),
    /// Failed.
    Failed(Failure),
    /// Postponed.
    RetryLater {
        /// How long to wait; `None` = [`crate::POSTPONE_DEFAULT`].
        delay: Option<Millis>,
        /// The reason.
        message: Box<str>,
    },
}

/// The timers of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Wakeup {
    /// The start of a scheduled task.
    Start,
    /// The retry or the deadline of an execution.
    Act(ActKey),
    /// The deadline of the task.
    Deadline,
}

/// An operator's decision about a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Try again, with all retries, and with these parameters overriding the previous ones.
    Retry(Option<Json>),
    /// Continue without it.
    Skip,
    /// It was executed by hand, with this result.
    Done(Option<Json>),
    /// Give up: roll the task back.
    Rollback,
}

impl Resolution {
    /// The stable code of the decision.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Retry(_) => "retry",
            Self::Skip => "skip",
            Self::Done(_) => "done",
            Self::Rollback => "rollback",
        }
    }
}
