//! The rulebook: what a task, an alarm or a lock does next.
//!
//! Everything here is a pure function of its arguments: no clock, no randomness, no I/O, no `async`. Time and
//! what only the engine can know (who holds an attempt) come in through [`Context`]; what is to be done comes
//! out as data. The life of a task is
//!
//! ```text
//! Command ──apply──▶ rules/<one file per rule> ──events──▶ evolve ──▶ the next Task
//!                                                   └────────────────▶ effects, derived from both states
//! ```
//!
//! Rules only append events; [`evolve()`] alone changes state, so replaying all events of a task gives the task.
//! The core cannot fail, it can only reject ([`Rejection`]).

mod act;
mod act_extras;
mod alarm;
mod apply;
mod backoff;
mod child;
mod command;
mod context;
mod draft;
mod effect;
mod event;
mod evolve;
mod expression;
mod flow;
mod id;
mod input;
mod invariants;
mod json;
mod lock;
mod members;
mod mix;
mod order;
mod params;
mod payload;
pub mod planted;
mod rejection;
mod results;
mod rules;
mod status;
mod task;
mod time;
mod trouble;

pub use act::*;
pub use act_extras::*;
pub use alarm::*;
pub use apply::*;
pub use backoff::*;
pub use child::*;
pub use command::*;
pub use context::*;
pub use effect::*;
pub use event::*;
pub use evolve::*;
pub use expression::{
    EVALUATION_STEPS_PER_TRANSITION_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_CONSTANT_STEPS_MAX,
    EXPRESSION_DEPTH_MAX, EXPRESSION_LOOPS_MAX, EXPRESSION_MEMBER_STEPS_MAX, EXPRESSION_STEPS_MAX,
    EXPRESSION_TEXT_BYTES_MAX, EvaluationBudget, Expression, ExpressionError,
};
pub use flow::*;
pub use id::*;
pub use input::*;
pub use invariants::*;
pub use json::*;
pub use lock::*;
pub use members::*;
pub use params::*;
pub use rejection::*;
pub use results::*;
pub use rules::{DATA_CODE, DEADLINE_CODE, START_CODE, TIMEOUT_CODE, wants_lock};
pub use status::*;
pub use task::*;
pub use time::*;
pub use trouble::*;
