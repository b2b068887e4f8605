//! Why a task does not move: everything it waits for at the moment, each with what would end the wait.

mod acts;
mod handing_out;
mod history;
mod locks;
mod members;

use std::sync::Arc;

use windlass_core::{
    ActKey, ActState, Actor, Awaited, Millis, Name, Pause, Phase, StuckKind, Task, TaskId, TaskStatus,
    Timestamp, task_status,
};
use windlass_store::{LimitState, Loaded, Now, QueuePause};

use crate::{Engine, EngineError, Holder, LastHeard, OfferedAt, Progress};
use acts::Look;

/// Why a task is where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What holds the task as a whole, then what each of its steps waits for, in definition order. Never empty; at
    /// most [`REASONS_MAX`].
    pub reasons: Vec<Reason>,
    /// How many more there are.
    pub more: usize,
}

/// The most reasons that are told.
pub const REASONS_MAX: usize = 20;

/// One reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    /// What it is about; nothing = the task as a whole.
    pub key: Option<ActKey>,
    /// The reason.
    pub why: Why,
    /// When the deadline of what it is about ends, where one runs: of the task's own, or of the attempts of the step.
    pub deadline_at: Option<Timestamp>,
}

/// Why a task, a step or a member is where it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// It has ended.
    Ended(TaskStatus),
    /// A person must settle it.
    Stuck {
        /// The kind of trouble.
        kind: StuckKind,
        /// What happened.
        message: String,
    },
    /// A person holds the task; attempts that are still in flight may end.
    Paused {
        /// Attempts in flight.
        in_flight: usize,
        /// Since when.
        since: Option<Timestamp>,
        /// Who.
        by: Option<Actor>,
    },
    /// Its start time has not come.
    Scheduled {
        /// When it comes.
        at: Timestamp,
    },
    /// The task turned around and waits for this attempt to end before it undoes anything.
    Ending(AtWorker),
    /// A worker has it.
    Running(AtWorker),
    /// The next attempt is not due.
    Retry {
        /// Number of the attempt that failed.
        attempt: u32,
        /// How many attempts failed.
        failures: u32,
        /// How many retries there are.
        retries: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// Why it failed.
        message: Option<String>,
    },
    /// An attempt asked to be tried later.
    Postponed {
        /// Number of that attempt.
        attempt: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// What it said.
        message: Option<String>,
    },
    /// Its deadline comes before its next attempt would.
    DeadlineFirst {
        /// When.
        at: Timestamp,
    },
    /// The step waits for a time before it begins.
    Delayed {
        /// When it begins.
        until: Timestamp,
    },
    /// Somebody must send a signal.
    Signal {
        /// Its name.
        name: Name,
        /// Since when it is waited for.
        since: Option<Timestamp>,
        /// Until when it may come.
        until: Option<Timestamp>,
    },
    /// A task it started must end.
    Child {
        /// Which; nothing = it is being started.
        task: Option<TaskId>,
        /// What that task does, and why it is where it is.
        child: Option<Box<ChildReason>>,
    },
    /// Another step has a lock that it needs.
    Lock {
        /// The lock; others that it needs come after it.
        name: Name,
        /// Who has it; nothing = it is on its way.
        holder: Option<HeldBy>,
        /// How many wait for it and come before.
        before: usize,
        /// Since when it waits.
        since: Option<Timestamp>,
    },
    /// Its members do it.
    Members {
        /// How many there are.
        total: u32,
        /// How many are done or passed over.
        done: u32,
        /// How many have failed for good.
        failed: u32,
        /// How many are under way.
        under_way: u32,
        /// The first of those under way that no worker has, else the first.
        first: Option<Box<Reason>>,
    },
    /// Its queue is paused.
    QueuePaused {
        /// The queue.
        module: Name,
        /// Since when and by whom.
        pause: QueuePause,
    },
    /// No connected worker takes its command.
    NoWorker {
        /// Its module.
        module: Name,
        /// How many workers serve the command, and take nothing more because they drain.
        draining: usize,
        /// How many workers serve the module, and not the command.
        without_command: usize,
        /// How many workers serve other modules.
        others: usize,
        /// The last worker of the module, as far as this server knows.
        last: Option<LastHeard>,
        /// Since when this server runs, where there was none since.
        since_start: Option<Timestamp>,
    },
    /// A limit is reached.
    Limited {
        /// The limit, with what counts under the attempt's key.
        state: Box<LimitState>,
        /// Who holds it, oldest first, at most [`HOLDERS_TOLD_MAX`](crate::HOLDERS_TOLD_MAX).
        holders: Vec<Holder>,
    },
    /// It waits for its turn.
    Queued {
        /// The queue.
        module: Name,
        /// How many attempts stand before it.
        before: u64,
        /// How many workers serve its command.
        workers: usize,
        /// In how long it has its turn if the queue goes on as in the last minute.
        estimate: Option<Millis>,
    },
    /// It is in a queue of a broker, and nobody has taken it yet.
    Offered {
        /// The module.
        module: Name,
        /// Where; nothing = another server offers it.
        at: Option<OfferedAt>,
        /// Since when.
        since: Timestamp,
    },
    /// The server has just read its disk, as at its start; workers may come back and name what they hold.
    Grace,
    /// It is on its way: to a worker, or to its next state.
    Moving,
}

/// Why a task that a step waits for is where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildReason {
    /// The task.
    pub task: Arc<Task>,
    /// What it does.
    pub status: TaskStatus,
    /// The first of its reasons.
    pub reason: Reason,
}

/// The step that has what others wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldBy {
    /// The task.
    pub task: TaskId,
    /// The name of its step, if the task is still there.
    pub step: Option<Name>,
    /// The act.
    pub key: ActKey,
    /// Since when.
    pub since: Timestamp,
}

/// An attempt that a worker has.
#[derive(Debug, Clone, PartialEq)]
pub struct AtWorker {
    /// Number of the attempt.
    pub attempt: u32,
    /// Name of the worker.
    pub worker: String,
    /// Since when.
    pub since: Timestamp,
    /// How long it may take.
    pub timeout: Option<Millis>,
    /// How far it says it is.
    pub progress: Option<Progress>,
}

impl Why {
    /// The word for it, which stays the same.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ended(_) => "ended",
            Self::Stuck { .. } => "stuck",
            Self::Paused { .. } => "task_paused",
            Self::Scheduled { .. } => "scheduled",
            Self::Ending(_) => "ending",
            Self::Running(_) => "running",
            Self::Retry { .. } => "retry",
            Self::Postponed { .. } => "postponed",
            Self::DeadlineFirst { .. } => "deadline",
            Self::Delayed { .. } => "delayed",
            Self::Signal { .. } => "signal",
            Self::Child { .. } => "child",
            Self::Lock { .. } => "lock",
            Self::Members { .. } => "members",
            Self::QueuePaused { .. } => "queue_paused",
            Self::NoWorker { .. } => "no_worker",
            Self::Limited { .. } => "limit",
            Self::Queued { .. } => "queued",
            Self::Offered { .. } => "offered",
            Self::Grace => "grace",
            Self::Moving => "moving",
        }
    }
}

impl Reason {
    /// A reason of the task as a whole.
    fn of_task(task: &Task, why: Why) -> Self {
        Self { key: None, why, deadline_at: running_deadline(task) }
    }
}

/// When the task's own deadline ends, while it can still turn the task around.
#[must_use]
pub fn running_deadline(task: &Task) -> Option<Timestamp> {
    let runs = matches!(task.state.phase, Phase::Scheduled | Phase::Forward);
    task.deadline_at().filter(|_| runs)
}

impl Explanation {
    /// The reason that the others stand behind.
    #[must_use]
    pub fn first(&self) -> &Why {
        self.reasons.first().map_or(&Why::Moving, |reason| &reason.why)
    }
}

impl Engine {
    /// Why the task is where it is, with the task.
    ///
    /// # Errors
    /// When it is not there or the store fails.
    pub async fn why(&self, id: TaskId, now: Now) -> Result<(Loaded, Explanation), EngineError> {
        let loaded = self.task(id).await?;
        let mut reasons = self.why_held(&loaded).await?;
        let mut more = 0;
        if !loaded.task.is_ended() {
            let look = Look::new(self, &loaded, now).await?;
            for key in keys(&loaded.task) {
                if reasons.len() < REASONS_MAX {
                    reasons.extend(look.why(key).await?.map(|why| look.reason(key, why)));
                } else {
                    more += usize::from(look.is_open(key));
                }
            }
        }
        if loaded.task.state.stuck.is_some() {
            // What a person must settle stands before everything else, as it does in the status.
            reasons.sort_by_key(|reason| !matches!(reason.why, Why::Stuck { .. }));
        }
        if reasons.is_empty() {
            reasons.push(Reason::of_task(&loaded.task, Why::Moving));
        }
        Ok((loaded, Explanation { reasons, more }))
    }

    /// What holds the task as a whole.
    async fn why_held(&self, loaded: &Loaded) -> Result<Vec<Reason>, EngineError> {
        let task = &loaded.task;
        let mut held = Vec::new();
        if task.is_ended() {
            held.push(Why::Ended(task_status(task, &loaded.held())));
        } else {
            if let Some(stuck) = task.state.stuck.as_ref().filter(|stuck| stuck.step.is_none()) {
                held.push(Why::Stuck { kind: stuck.kind, message: stuck.message.to_string() });
            } else if task.state.pause == Pause::Held {
                let (since, by) = self.last_pause(task).await?.unzip();
                held.push(Why::Paused { in_flight: in_flight(loaded), since, by: by.flatten() });
            }
            if let (Phase::Scheduled, Some(at)) = (task.state.phase, task.input.at) {
                held.push(Why::Scheduled { at });
            }
        }
        Ok(held.into_iter().map(|why| Reason::of_task(task, why)).collect())
    }
}

/// The acts of steps as a whole, in definition order.
fn keys(task: &Task) -> Vec<ActKey> {
    task.step_acts().map(|(key, _)| key).collect()
}

/// Attempts that workers have, or may be about to name, and tasks that were started.
fn in_flight(loaded: &Loaded) -> usize {
    let awaited = loaded.awaited.iter().filter(|key| {
        let waits = loaded.task.act(**key).is_some_and(|act| act.state == ActState::Ready);
        waits && !loaded.claims.iter().any(|claim| claim.key == **key)
    });
    let children = loaded.task.open_acts().filter(|(_, act)| act.state == ActState::Awaiting(Awaited::Child));
    loaded.claims.len() + awaited.count() + children.count()
}
