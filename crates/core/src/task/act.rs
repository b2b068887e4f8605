//! The execution of one step, forward or rollback: its state, and the results of its attempts.

use serde::{Deserialize, Serialize};

use crate::{ActExtras, Json, LockName, Task, Timestamp};

/// The execution of a step, forward or rollback: its attempts and their results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// Its current state.
    pub state: ActState,
    /// Number of the current or last attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// Failures that count against the retries.
    pub failures: u32,
    /// Attempts whose worker died, went silent or gave no answer.
    pub deaths: u32,
    /// When the current attempt became ready; determines its rank.
    pub ready_at: Option<Timestamp>,
    /// The deadline of all attempts together. `None` until the first attempt is known to be taken: no deadline runs
    /// while the attempt waits in a queue.
    pub deadline_at: Option<Timestamp>,
    /// Its failure is certain, and only the end of the attempt is awaited: the deadline passed while a worker had it, or
    /// the result of its child task was dropped.
    pub overdue: bool,
    /// When the first attempt was handed out.
    pub started_at: Option<Timestamp>,
    /// When it reached its final state.
    pub ended_at: Option<Timestamp>,
    /// The last failure.
    pub failure: Option<Failure>,
    /// Fields that most executions do not need.
    pub extras: Option<Box<ActExtras>>,
    /// Its result. Stored separately.
    #[serde(skip)]
    pub result: Option<Json>,
}

/// The state of an execution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActState {
    /// Not started.
    #[default]
    Idle,
    /// An attempt is ready: a worker may claim it, or has claimed it.
    Ready,
    /// Ready except for the pause of its task.
    Parked,
    /// The next attempt is ready at this time.
    Delayed {
        /// When the next attempt is ready.
        until: Timestamp,
    },
    /// Completed.
    Succeeded,
    /// Failed, without a further retry.
    Failed,
    /// Skipped.
    Skipped,
    /// Waiting for something other than a worker or a time.
    Awaiting(Awaited),
    /// Its items are executed instead.
    Fanned,
}

/// What an execution waits for other than workers and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Awaited {
    /// A signal.
    Signal,
    /// The end of its child task.
    Child,
    /// A lock that another execution holds.
    Lock,
}

/// A lock that an execution needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// The name of the lock.
    pub name: LockName,
    /// The fencing token under which the execution holds it; `None` while it waits for the lock.
    pub fence: Option<u64>,
    /// An operator took it away: resources that check the fence refuse later writes under it.
    pub seized: bool,
}

impl HeldLock {
    /// A lock that the execution does not hold yet.
    #[must_use]
    pub fn wanted(name: LockName) -> Self {
        Self { name, fence: None, seized: false }
    }

    /// Whether the execution holds it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.fence.is_some() && !self.seized
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A line for humans.
    pub message: Box<str>,
    /// Exit code, never 0.
    pub code: i32,
    /// Whether another attempt can help.
    pub retryable: bool,
}

/// The longest failure message kept, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096;

impl Failure {
    /// A failure with its message cut to [`MESSAGE_BYTES_MAX`].
    #[must_use]
    pub fn new(message: &str, code: i32, retryable: bool) -> Self {
        let mut end = message.len().min(MESSAGE_BYTES_MAX);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        Self { message: message[..end].into(), code: if code == 0 { 1 } else { code }, retryable }
    }
}

/// The direction of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// The step runs.
    Forward,
    /// The step is rolled back.
    Rollback,
}

/// The key of one execution of a task: of a step, or of one of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActKey {
    /// Index of the step.
    pub step: usize,
    /// Number of the item, from 1; 0 for the step as a whole.
    pub member: u32,
    /// Forward or rollback.
    pub direction: Direction,
}

impl ActKey {
    /// The forward execution of the step.
    #[must_use]
    pub const fn forward(step: usize) -> Self {
        Self { step, member: 0, direction: Direction::Forward }
    }

    /// The rollback of the step.
    #[must_use]
    pub const fn rollback(step: usize) -> Self {
        Self { step, member: 0, direction: Direction::Rollback }
    }

    /// The owner of a lock that a task as a whole holds: no step has this index.
    pub const TASK: Self = Self { step: u32::MAX as usize, member: 0, direction: Direction::Forward };

    /// The owner of a lock that a process holds as a leader: no step has this index.
    pub const LEADER: Self = Self { step: u32::MAX as usize - 1, member: 0, direction: Direction::Forward };

    /// The same execution of one of the step's items, from 1; 0 is the step as a whole.
    #[must_use]
    pub const fn of_member(self, member: u32) -> Self {
        Self { member, ..self }
    }

    /// The item's index in the list, from 0.
    #[must_use]
    pub fn index(self) -> Option<u32> {
        self.member.checked_sub(1)
    }

    /// Whether it is an execution of an item.
    #[must_use]
    pub const fn is_member(self) -> bool {
        self.member != 0
    }
}

impl Task {
    /// Whether this attempt of an execution is ready. A claim of it lasts as long as that is so.
    #[must_use]
    pub fn has_ready(&self, key: ActKey, attempt: u32) -> bool {
        self.act(key).is_some_and(|act| act.state == ActState::Ready && act.attempt == attempt)
    }

    /// Whether this attempt of an execution is not settled. It stays known that a worker had it as long as that is so.
    #[must_use]
    pub fn has_current(&self, key: ActKey, attempt: u32) -> bool {
        self.act(key).is_some_and(|act| act.is_current() && act.attempt == attempt)
    }
}

impl Act {
    /// Whether it is neither idle nor settled: an attempt is ready, claimed, parked or delayed, or it awaits something
    /// else. The executions of its items do not count.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(
            self.state,
            ActState::Ready | ActState::Parked | ActState::Delayed { .. } | ActState::Awaiting(_)
        )
    }

    /// Whether its attempt is not settled: a worker may have it, or get it after a resume.
    #[must_use]
    pub fn is_current(&self) -> bool {
        matches!(self.state, ActState::Ready | ActState::Parked)
    }

    /// Whether it was completed, skipped, or has failed without a further retry.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_satisfied() || self.state == ActState::Failed
    }

    /// The lock it waits for. Locks are requested one after the other, in the order of their names, so that no two
    /// executions ever wait for each other.
    #[must_use]
    pub fn wanted_lock(&self) -> Option<&HeldLock> {
        let waits = self.state == ActState::Awaiting(Awaited::Lock);
        self.locks().iter().find(|lock| waits && lock.fence.is_none())
    }

    /// The locks it has requested and not released.
    pub fn claimed_locks(&self) -> impl Iterator<Item = &LockName> {
        let held = self.locks().iter().filter(|lock| lock.is_held());
        held.chain(self.wanted_lock()).map(|lock| &lock.name)
    }

    /// The last failure, as long as it is relevant: after a completion, by another attempt or by hand, its failures are
    /// history.
    #[must_use]
    pub fn trouble(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|_| self.state != ActState::Succeeded)
    }

    /// Whether it was completed or skipped.
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        matches!(self.state, ActState::Succeeded | ActState::Skipped)
    }
}
