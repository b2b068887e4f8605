//! Refusals: a command that changes nothing, and why.

use thiserror::Error;

use crate::{EVALUATION_STEPS_PER_TRANSITION_MAX, SECRET_REFERENCE, SIGNALS_MAX};

/// Why a command changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Rejection {
    /// The task has no such step.
    #[error("the task has no such step")]
    UnknownAct,
    /// The attempt was settled by the same report before.
    #[error("this attempt was reported before")]
    Duplicate,
    /// A newer attempt exists.
    #[error("another attempt has taken over")]
    Stale,
    /// The wake-up is outdated.
    #[error("nothing is due")]
    NothingDue,
    /// The task has ended.
    #[error("the task has ended")]
    Ended,
    /// No step of the task ever waits for this signal.
    #[error("no step of the task waits for a signal \"{0}\": look at the flow for its name")]
    UnknownSignal(String),
    /// Every step that waits for this signal is completed or skipped.
    #[error("no step will wait for the signal \"{0}\" any more: those that do are completed or skipped")]
    SignalDone(String),
    /// No step waits for this signal now, and it must not be kept.
    #[error("no step waits for the signal \"{0}\" now: send it later, or have it kept")]
    NobodyWaits(String),
    /// The maximum number of early signals is already kept.
    #[error("the task keeps {SIGNALS_MAX} signals for later already")]
    TooManySignals,
    /// The step does not wait for an operator.
    #[error("step \"{0}\" does not wait for a decision")]
    NothingToResolve(String),
    /// A step was given as completed although one before it is not, or it is not a plain step.
    #[error("step \"{0}\" cannot be done already: the steps before it are not")]
    DoneTooEarly(String),
    /// Items of the step have started, each with its element.
    #[error(
        "step \"{step}\" has begun with the elements of `{list}`: give it other parameters, not another list"
    )]
    ListInUse {
        /// The step.
        step: String,
        /// The parameter that holds the list.
        list: String,
    },
    /// The step is already being rolled back.
    #[error("step \"{0}\" is being rolled back already: use retry, skip or done")]
    AlreadyRollingBack(String),
    /// The task does not have its exclusive queue.
    #[error("the task does not have an exclusive queue")]
    NotInQueue,
    /// Something of the task is under way, so no other task of its exclusive queue may start.
    #[error(
        "the task has an attempt under way, and at most one task of an exclusive queue may be: pause the task and wait \
         for the attempt, or cancel the task"
    )]
    UnderWay,
    /// Workers still have attempts of the task that must stop.
    #[error("workers are still stopping attempts of the task: resume it when its status is paused")]
    Stopping,
    /// The expressions of a new task take too long in total.
    #[error(
        "the expressions of the flow take more than {EVALUATION_STEPS_PER_TRANSITION_MAX} steps together with these \
         parameters: submit shorter lists and strings, or let the flow evaluate fewer expressions at its start"
    )]
    TooMuchToEvaluate,
    /// A secret parameter is not a reference.
    #[error(
        "the parameter `{0}` is `secret` in the flow, and its value is not a reference: use \"{SECRET_REFERENCE}NAME\", \
         which workers replace by the value"
    )]
    PlainSecret(String),
    /// The task has not ended, so it cannot be rolled back as one that succeeded.
    #[error("the task has not ended: cancel it")]
    NotEnded,
    /// No step of the task has a rollback.
    #[error("no step of the task has a rollback")]
    NothingToRollBack,
    /// The transition would break an invariant: a defect of the rules, never of the input.
    #[error("engine fault: {0}")]
    Fault(String),
}
