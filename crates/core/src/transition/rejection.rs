//! Refusals: a command that changes nothing, and why.

use thiserror::Error;

use crate::{EVALUATION_STEPS_PER_TRANSITION_MAX, SIGNALS_MAX};

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
    /// No step of the task ever waits for this signal.
    #[error("no step of the task waits for a signal \"{0}\": look at the flow for its name")]
    UnknownSignal(String),
    /// Every step that waits for this signal is done.
    #[error("no step will wait for the signal \"{0}\" any more: those that do are done or passed over")]
    SignalDone(String),
    /// No step waits for this signal now, and it is not to be kept.
    #[error("no step waits for the signal \"{0}\" now: send it later, or have it kept")]
    NobodyWaits(String),
    /// So many signals came before their steps that no more are kept.
    #[error("the task keeps {SIGNALS_MAX} signals for later already")]
    TooManySignals,
    /// The step does not wait for a person.
    #[error("step \"{0}\" does not wait for a decision")]
    NothingToResolve(String),
    /// A step is said to be done, and one before it is not, or it is no step that a task does.
    #[error("step \"{0}\" cannot be done already: the steps before it are not")]
    DoneTooEarly(String),
    /// Members of the step have begun, each with its element.
    #[error(
        "step \"{step}\" has begun with the elements of `{list}`: give it other parameters, not another list"
    )]
    ListInUse {
        /// The step.
        step: String,
        /// The parameter that holds the list.
        list: String,
    },
    /// The step is being undone already.
    #[error("step \"{0}\" is being rolled back already: use retry, skip or done")]
    AlreadyRollingBack(String),
    /// The expressions of a new task take too long, all together.
    #[error(
        "the expressions of the flow take more than {EVALUATION_STEPS_PER_TRANSITION_MAX} steps together with these \
         parameters: submit shorter lists and strings, or let the flow evaluate fewer expressions at its start"
    )]
    TooMuchToEvaluate,
    /// The transition would break an invariant: a defect of the rules, never of the input.
    #[error("engine fault: {0}")]
    Fault(String),
}
