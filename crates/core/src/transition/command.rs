//! What can be asked of a task.

use crate::{ActKey, Actor, ChildEnd, Failure, Json, LockName, Millis, Name, TaskId, Timestamp};

/// Something asked of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Take the task in; the first command of every task.
    Accept {
        /// Steps that were done by another task of which this is a new run: what they returned.
        done: Vec<(usize, Option<Json>)>,
        /// It starts although a task with the same unique key exists.
        overrides_unique: bool,
        /// Who asked for it.
        by: Option<Actor>,
    },
    /// A worker says how an attempt went.
    Report(Report),
    /// The worker that had an attempt is gone.
    Lose(Attempt),
    /// The worker that had an attempt could not be heard because of a fault of a server.
    Reclaim(Attempt),
    /// An attempt ran longer than its timeout, and its worker did not end it.
    TimeOut(Attempt),
    /// A worker has had the attempt for a while: when it took it is to be kept, because a deadline counts from there.
    Taken(Attempt),
    /// An attempt of a paused task is with no worker any more: it was given back, or nobody named it after a
    /// restart.
    Park(Attempt),
    /// A time the task waited for has come.
    Wake(Wakeup),
    /// A person ends it; what was touched is undone.
    Cancel {
        /// Who.
        by: Option<Actor>,
    },
    /// A person holds it between attempts.
    Pause {
        /// Who.
        by: Option<Actor>,
    },
    /// A person lets it go on.
    Resume {
        /// Who.
        by: Option<Actor>,
    },
    /// Somebody sends a signal.
    Signal {
        /// Its name.
        name: Name,
        /// What the step that waits for it returns.
        params: Option<Json>,
        /// Whether it is kept where no step waits for it yet.
        keep: bool,
        /// Who.
        by: Option<Actor>,
    },
    /// A person settles a stuck or held step.
    Resolve {
        /// Index of the step.
        step: usize,
        /// How.
        resolution: Resolution,
        /// Who.
        by: Option<Actor>,
    },
    /// A lock says that an act has it.
    Granted {
        /// The act.
        key: ActKey,
        /// Which of the times it asked.
        turn: u32,
        /// The lock.
        name: LockName,
        /// The fencing token.
        fence: u64,
    },
    /// A lock says that a person took it from an act.
    Seized {
        /// The act.
        key: ActKey,
        /// The lock.
        name: LockName,
        /// The fencing token under which the act had it.
        fence: u64,
        /// Why.
        reason: Box<str>,
        /// Who.
        by: Option<Actor>,
    },
    /// The task that a step started has ended.
    ChildEnded {
        /// The step, forward or back.
        key: ActKey,
        /// That task.
        child: TaskId,
        /// What it came to.
        end: ChildEnd,
    },
    /// The task that waits for this one has turned around.
    CancelForParent,
    /// The task whose step this one did undoes that step.
    UndoForParent,
    /// The engine found that a transition would break an invariant: hold the task.
    Hold {
        /// Which invariant.
        message: Box<str>,
    },
}

/// One try of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The act.
    pub key: ActKey,
    /// Number of the attempt.
    pub number: u32,
    /// When it was handed out, where that is known.
    pub started_at: Option<Timestamp>,
}

/// How an attempt went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The attempt.
    pub attempt: Attempt,
    /// How it went.
    pub outcome: Outcome,
}

/// How an attempt went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done, with what it returned.
    Succeeded(Option<Json>),
    /// Failed.
    Failed(Failure),
    /// Not now.
    RetryLater {
        /// How long to wait; [`crate::POSTPONE_DEFAULT`] when left out.
        delay: Option<Millis>,
        /// Why.
        message: Box<str>,
    },
}

/// What a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Wakeup {
    /// The start of a scheduled task.
    Start,
    /// The retry or the deadline of an act.
    Act(ActKey),
    /// The deadline of the task.
    Deadline,
}

/// How a person settles a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Try it again, with all its retries, and with these parameters over those it had.
    Retry(Option<Json>),
    /// Go on without it.
    Skip,
    /// It was done by hand, and this is what it would have returned.
    Done(Option<Json>),
    /// Give up: roll the task back.
    Rollback,
}

impl Resolution {
    /// The word for it.
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
