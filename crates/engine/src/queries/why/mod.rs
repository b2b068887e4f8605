//! Why a task does not progress: every current wait, each with the condition that ends it.

mod acts;
mod devices;
mod handing_out;
mod history;
mod locks;
mod members;

use std::sync::Arc;

use windlass_core::{
    ActKey, ActState, Actor, Awaited, Millis, Name, Phase, StuckKind, Task, TaskId, TaskStatus, Timestamp,
    task_status,
};
use windlass_store::{LimitState, Loaded, Now, QueuePause};

use crate::{Engine, EngineError, Holder, LastHeard, OfferedAt, Progress};
use acts::Look;

/// Why a task is in its state.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The reasons of the task as a whole, then those of its steps, in definition order. Never empty; at most
    /// [`REASONS_MAX`].
    pub reasons: Vec<Reason>,
    /// The number of further reasons.
    pub more: usize,
}

/// The maximum number of returned reasons.
pub const REASONS_MAX: usize = 20;

/// One reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    /// The execution it concerns; `None` = the task as a whole.
    pub key: Option<ActKey>,
    /// The reason.
    pub why: Why,
    /// The running deadline of the task, or of the step's attempts, if there is one.
    pub deadline_at: Option<Timestamp>,
    /// The device that it waits for, if it waits for one.
    pub device: Option<AwaitedDevice>,
}

/// A device that a step waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedDevice {
    /// Its name.
    pub name: Name,
    /// Whether it counts as online; `None` = no device of this name is declared.
    pub online: Option<bool>,
    /// Since when, if it was ever heard.
    pub since: Option<Timestamp>,
}

/// Why a task, a step or an item is in its state.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// It has ended.
    Ended(TaskStatus),
    /// An operator must resolve it.
    Stuck {
        /// The kind of trouble.
        kind: StuckKind,
        /// The error message.
        message: String,
    },
    /// An operator has paused the task; attempts in flight may end.
    Paused {
        /// Attempts in flight.
        in_flight: usize,
        /// Since when.
        since: Option<Timestamp>,
        /// The operator.
        by: Option<Actor>,
    },
    /// Its start time is in the future.
    Scheduled {
        /// The start time.
        at: Timestamp,
    },
    /// The task started rolling back and waits for this attempt to end before it rolls back any step.
    Ending(AtWorker),
    /// A worker runs it.
    Running(AtWorker),
    /// The next attempt is not due.
    Retry {
        /// Number of the attempt that failed.
        attempt: u32,
        /// The number of failed attempts.
        failures: u32,
        /// The maximum number of retries.
        retries: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// The failure message.
        message: Option<String>,
    },
    /// An attempt was postponed by its worker.
    Postponed {
        /// Number of that attempt.
        attempt: u32,
        /// When the next one is ready.
        until: Timestamp,
        /// The worker's message.
        message: Option<String>,
    },
    /// Its deadline is before its next attempt.
    DeadlineFirst {
        /// The deadline.
        at: Timestamp,
    },
    /// The step waits for a time before it starts.
    Delayed {
        /// When it starts.
        until: Timestamp,
    },
    /// It waits for a signal.
    Signal {
        /// Its name.
        name: Name,
        /// Since when it is waited for.
        since: Option<Timestamp>,
        /// The deadline for the signal.
        until: Option<Timestamp>,
    },
    /// It waits for the end of a child task.
    Child {
        /// The child task; `None` = it is being started.
        task: Option<TaskId>,
        /// The status of the child task and the reason for it.
        child: Option<Box<ChildReason>>,
    },
    /// Another step holds a lock that it needs.
    Lock {
        /// The lock; other locks that it needs are acquired after it.
        name: Name,
        /// Its holder; `None` = the grant is in transit.
        holder: Option<HeldBy>,
        /// The number of waiters before this one.
        before: usize,
        /// Since when it waits.
        since: Option<Timestamp>,
    },
    /// Another task has the exclusive queue of this task.
    Exclusive {
        /// The queue.
        queue: Name,
        /// The holder; `None` = the grant is in transit.
        holder: Option<HeldBy>,
        /// The number of tasks that wait before this one.
        before: usize,
        /// The time by which the task is ordered in the queue.
        since: Option<Timestamp>,
    },
    /// It waits for its items.
    Members {
        /// The number of items.
        total: u32,
        /// The number of items that are completed or skipped.
        done: u32,
        /// The number of items that have failed without a further retry.
        failed: u32,
        /// The number of open items.
        under_way: u32,
        /// The first open item that no worker has claimed, else the first open one.
        first: Option<Box<Reason>>,
    },
    /// Its queue is paused.
    QueuePaused {
        /// The queue.
        module: Name,
        /// Since when and by whom.
        pause: QueuePause,
    },
    /// No connected worker serves its command.
    NoWorker {
        /// Its module.
        module: Name,
        /// The number of workers that serve the command but drain.
        draining: usize,
        /// The number of workers that serve the module without the command.
        without_command: usize,
        /// The number of workers that serve other modules.
        others: usize,
        /// The last worker of the module that this server knows.
        last: Option<LastHeard>,
        /// When this server started, if no worker of the module has called since.
        since_start: Option<Timestamp>,
    },
    /// A limit is reached.
    Limited {
        /// The limit, with the count for the attempt's concurrency key.
        state: Box<LimitState>,
        /// The attempts that count under it, oldest first, at most [`HOLDERS_TOLD_MAX`](crate::HOLDERS_TOLD_MAX).
        holders: Vec<Holder>,
    },
    /// It waits in its queue.
    Queued {
        /// The queue.
        module: Name,
        /// The number of attempts before it.
        before: u64,
        /// The number of workers that serve its command.
        workers: usize,
        /// The estimated wait if the queue keeps the rate of the last minute.
        estimate: Option<Millis>,
    },
    /// It is in a queue of a broker, and no worker has taken it yet.
    Offered {
        /// The module.
        module: Name,
        /// The broker's queue; `None` = another server offers it.
        at: Option<OfferedAt>,
        /// Since when.
        since: Timestamp,
    },
    /// The server has just read its store, for example at its start; workers may still return and name their attempts.
    Grace,
    /// It is in transit: to a worker, or to its next state.
    Moving,
}

/// Why a child task that a step waits for is in its state.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildReason {
    /// The task.
    pub task: Arc<Task>,
    /// Its status.
    pub status: TaskStatus,
    /// The first of its reasons.
    pub reason: Reason,
}

/// The execution that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldBy {
    /// The task.
    pub task: TaskId,
    /// The name of its step, if the task still exists.
    pub step: Option<Name>,
    /// The execution.
    pub key: ActKey,
    /// Since when it holds the lock.
    pub since: Timestamp,
}

/// An attempt that a worker has claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct AtWorker {
    /// Number of the attempt.
    pub attempt: u32,
    /// Name of the worker.
    pub worker: String,
    /// Since when.
    pub since: Timestamp,
    /// The maximum duration of the attempt.
    pub timeout: Option<Millis>,
    /// The progress it reported.
    pub progress: Option<Progress>,
}

impl Why {
    /// The stable code of the reason.
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
            Self::Exclusive { .. } => "exclusive",
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
        Self { key: None, why, deadline_at: running_deadline(task), device: None }
    }
}

/// When the task's own deadline ends, while it can still make the task roll back.
#[must_use]
pub fn running_deadline(task: &Task) -> Option<Timestamp> {
    let runs = matches!(task.state.phase, Phase::Scheduled | Phase::Forward);
    task.deadline_at().filter(|_| runs)
}

impl Explanation {
    /// The most important reason.
    #[must_use]
    pub fn first(&self) -> &Why {
        self.reasons.first().map_or(&Why::Moving, |reason| &reason.why)
    }
}

impl Engine {
    /// Why the task is in its state, with the task.
    ///
    /// # Errors
    /// When it does not exist or the store fails.
    pub async fn why(&self, id: TaskId, now: Now) -> Result<(Loaded, Explanation), EngineError> {
        let loaded = self.task(id).await?;
        let mut reasons = self.why_held(&loaded).await?;
        let mut more = 0;
        if !loaded.task.is_ended() {
            let look = Look::new(self, &loaded, now).await?;
            for key in keys(&loaded.task) {
                if reasons.len() < REASONS_MAX {
                    if let Some(why) = look.why(key).await? {
                        reasons.push(look.reason(key, why).await?);
                    }
                } else {
                    more += usize::from(look.is_open(key));
                }
            }
        }
        if loaded.task.state.stuck.is_some() {
            // Reasons that an operator must resolve come first, as they do in the status.
            reasons.sort_by_key(|reason| !matches!(reason.why, Why::Stuck { .. }));
        }
        if reasons.is_empty() {
            reasons.push(Reason::of_task(&loaded.task, Why::Moving));
        }
        Ok((loaded, Explanation { reasons, more }))
    }

    /// The reasons of the task as a whole.
    async fn why_held(&self, loaded: &Loaded) -> Result<Vec<Reason>, EngineError> {
        let task = &loaded.task;
        let mut held = Vec::new();
        if task.is_ended() {
            held.push(Why::Ended(task_status(task, &loaded.held())));
        } else {
            if let Some(stuck) = task.state.stuck.as_ref().filter(|stuck| stuck.step.is_none()) {
                held.push(Why::Stuck { kind: stuck.kind, message: stuck.message.to_string() });
            } else if task.state.pause.is_paused() {
                let (since, by) = self.last_pause(task).await?.unzip();
                held.push(Why::Paused { in_flight: in_flight(loaded), since, by: by.flatten() });
            }
            if task.waits_for_queue() {
                held.push(self.why_exclusive(task).await?);
            }
            if let (Phase::Scheduled, Some(at)) = (task.state.phase, task.input.at) {
                held.push(Why::Scheduled { at });
            }
        }
        Ok(held.into_iter().map(|why| Reason::of_task(task, why)).collect())
    }
}

/// The executions of whole steps, in definition order.
fn keys(task: &Task) -> Vec<ActKey> {
    task.step_acts().map(|(key, _)| key).collect()
}

/// Attempts that workers have claimed, or may be about to name, and started child tasks.
fn in_flight(loaded: &Loaded) -> usize {
    let awaited = loaded.awaited.iter().filter(|key| {
        let waits = loaded.task.act(**key).is_some_and(|act| act.state == ActState::Ready);
        waits && !loaded.claims.iter().any(|claim| claim.key == **key)
    });
    let children = loaded.task.open_acts().filter(|(_, act)| act.state == ActState::Awaiting(Awaited::Child));
    loaded.claims.len() + awaited.count() + children.count()
}
