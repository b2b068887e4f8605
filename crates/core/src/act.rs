//! Doing or undoing one step: where it stands, and how its attempts went.

use serde::{Deserialize, Serialize};

use crate::{Json, Timestamp};

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
    /// Times an attempt asked to be tried later.
    pub postponements: u32,
    /// When the current attempt became ready; decides its rank.
    pub ready_at: Option<Timestamp>,
    /// By when all attempts together must be done.
    pub deadline_at: Option<Timestamp>,
    /// The deadline passed while a worker had the attempt: it is cancelled, and its end is waited for.
    pub overdue: bool,
    /// When the first attempt was handed out.
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    pub ended_at: Option<Timestamp>,
    /// The last failure.
    pub failure: Option<Failure>,
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

/// Names one act of a task. `member` counts the members of a fanned-out step; 0 for a plain step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActKey {
    /// Index of the step.
    pub step: usize,
    /// Index of the member.
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
}

impl Act {
    /// Whether it is neither idle nor settled: an attempt is ready, with a worker, parked or delayed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, ActState::Ready | ActState::Parked | ActState::Delayed { .. })
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
