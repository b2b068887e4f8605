//! The rulebook: the next state of a task, an alarm or a lock.
//!
//! Everything here is a pure function of its arguments: no clock, no randomness, no I/O, no `async`. Time and facts
//! that only the engine knows (which attempts are claimed) come in through [`Context`]; effects come out as data. The
//! life of a task is
//!
//! ```text
//! Command ──apply──▶ rules/<one file per rule> ──events──▶ evolve ──▶ the next Task
//!                                                   └────────────────▶ effects, derived from both states
//! ```
//!
//! Rules only append events; [`evolve()`] alone changes state, so replaying all events of a task gives the task. The
//! core cannot fail, it can only reject ([`Rejection`]).

mod alarm;
mod child;
mod device;
mod expression;
mod flow;
mod leader;
mod learn;
mod lock;
pub mod planted;
mod rollout;
mod rules;
mod task;
pub(crate) mod transition;
mod trigger;
pub(crate) mod values;

pub use alarm::*;
pub use child::*;
pub use device::*;
pub use expression::{
    EVALUATION_STEPS_PER_TRANSITION_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_CONSTANT_STEPS_MAX,
    EXPRESSION_DEPTH_MAX, EXPRESSION_LOOPS_MAX, EXPRESSION_MEMBER_STEPS_MAX, EXPRESSION_STEPS_MAX,
    EXPRESSION_TEXT_BYTES_MAX, EvaluationBudget, Expression, ExpressionError,
};
pub use flow::*;
pub use leader::*;
pub use learn::*;
pub use lock::*;
pub use rollout::*;
pub use rules::{DATA_CODE, DEADLINE_CODE, START_CODE, TIMEOUT_CODE, wants_lock};
pub use task::*;
pub use transition::*;
pub use trigger::*;
pub use values::*;
