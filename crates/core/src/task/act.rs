//! Doing or undoing one step: where it stands, and how its attempts went.

use serde::{Deserialize, Serialize};

use crate::{ActExtras, Json, LockName, Timestamp};

/// Doing or undoing a step: its attempts and how they went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// Where it stands.
    pub state: ActState,
    /// Number of the current or last attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// Failures that count against the retries.
    pub failures: u32,
    /// Attempts whose worker died or went silent.
    pub deaths: u32,
    /// When the current attempt became ready; decides its rank.
    pub ready_at: Option<Timestamp>,
    /// By when all attempts together must be done. Absent until the first attempt is known to be taken: no
    /// deadline runs while it waits in a queue.
    pub deadline_at: Option<Timestamp>,
    /// The deadline passed while a worker had the attempt: it is cancelled, and its end is waited for.
    pub overdue: bool,
    /// When the first attempt was handed out.
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    pub ended_at: Option<Timestamp>,
    /// The last failure.
    pub failure: Option<Failure>,
    /// What most acts lack.
    pub extras: Option<Box<ActExtras>>,
    /// What it returned. Stored apart.
    #[serde(skip)]
    pub result: Option<Json>,
}

/// Where an act stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActState {
    /// Not begun.
    #[default]
    Idle,
    /// An attempt is ready: a worker may take it, or has it.
    Ready,
    /// Ready but for the pause of its task.
    Parked,
    /// The next attempt is ready at this time.
    Delayed {
        /// When.
        until: Timestamp,
    },
    /// Done.
    Succeeded,
    /// Failed for good.
    Failed,
    /// Passed over.
    Skipped,
    /// Something else than a worker or a time must come.
    Awaiting(Awaited),
    /// Its members do it.
    Fanned,
}

/// What an act waits for beside workers and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Awaited {
    /// A signal.
    Signal,
    /// The end of its child task.
    Child,
    /// A lock that others have.
    Lock,
}

/// A lock that an act needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// Which.
    pub name: LockName,
    /// The fencing token under which the act has it; nothing while it waits for it.
    pub fence: Option<u64>,
    /// A person took it away: whoever checks the fence refuses what is done under it.
    pub seized: bool,
}

impl HeldLock {
    /// A lock that the act does not have yet.
    #[must_use]
    pub fn wanted(name: LockName) -> Self {
        Self { name, fence: None, seized: false }
    }

    /// Whether the act has it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.fence.is_some() && !self.seized
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A line for people.
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

/// Do it or undo it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Do it.
    Forward,
    /// Undo it.
    Rollback,
}

/// Names one act of a task: of a step, or of one of its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActKey {
    /// Index of the step.
    pub step: usize,
    /// Number of the member, from 1; 0 for the step as a whole.
    pub member: u32,
    /// Which of its two acts.
    pub direction: Direction,
}

impl ActKey {
    /// Doing the step.
    #[must_use]
    pub const fn forward(step: usize) -> Self {
        Self { step, member: 0, direction: Direction::Forward }
    }

    /// Undoing the step.
    #[must_use]
    pub const fn rollback(step: usize) -> Self {
        Self { step, member: 0, direction: Direction::Rollback }
    }

    /// The same act of one of the step's members, from 1; 0 is that of the step as a whole.
    #[must_use]
    pub const fn of_member(self, member: u32) -> Self {
        Self { member, ..self }
    }

    /// The member's place in the list, from 0.
    #[must_use]
    pub fn index(self) -> Option<u32> {
        self.member.checked_sub(1)
    }

    /// Whether it is an act of a member.
    #[must_use]
    pub const fn is_member(self) -> bool {
        self.member != 0
    }
}

impl Act {
    /// Whether it is neither idle nor settled: an attempt is ready, with a worker, parked or delayed, or something
    /// else is awaited. What its members do is asked of them.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(
            self.state,
            ActState::Ready | ActState::Parked | ActState::Delayed { .. } | ActState::Awaiting(_)
        )
    }

    /// Whether it was done, passed over, or has failed for good.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_satisfied() || self.state == ActState::Failed
    }

    /// The lock it waits for. They are asked for one after the other, in the order of their names: so no two acts
    /// ever wait for one another.
    #[must_use]
    pub fn wanted_lock(&self) -> Option<&HeldLock> {
        let waits = self.state == ActState::Awaiting(Awaited::Lock);
        self.locks().iter().find(|lock| waits && lock.fence.is_none())
    }

    /// The locks it has asked for and not given back.
    pub fn claimed_locks(&self) -> impl Iterator<Item = &LockName> {
        let held = self.locks().iter().filter(|lock| lock.is_held());
        held.chain(self.wanted_lock()).map(|lock| &lock.name)
    }

    /// Why it failed last, as long as that matters: once it is done after all, at another attempt or by hand, its
    /// failures are history.
    #[must_use]
    pub fn trouble(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|_| self.state != ActState::Succeeded)
    }

    /// Whether it was done or passed over.
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        matches!(self.state, ActState::Succeeded | ActState::Skipped)
    }
}
