//! Refusals: a command that changes nothing, and why.

use thiserror::Error;

/// Why a command changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Rejection {
    /// The task has no such step.
    #[error("the task has no such step")]
    UnknownAct,
    /// The attempt was settled by the same report before.
    #[error("this attempt was reported before")]
    Duplicate,
    /// Another attempt has taken over.
    #[error("another attempt has taken over")]
    Stale,
    /// What the wake-up was for is gone.
    #[error("nothing is due")]
    NothingDue,
    /// The task has ended.
    #[error("the task has ended")]
    Ended,
    /// The step does not wait for a person.
    #[error("step \"{0}\" does not wait for a decision")]
    NothingToResolve(String),
    /// The step is being undone already.
    #[error("step \"{0}\" is being rolled back already: use retry, skip or done")]
    AlreadyRollingBack(String),
    /// The transition would break an invariant: a defect of the rules, never of the input.
    #[error("engine fault: {0}")]
    Fault(String),
}
