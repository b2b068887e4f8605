//! A transition: a command and a task go in, events, effects and the next task come out.

pub(crate) mod apply;
pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod draft;
pub(crate) mod effect;
pub(crate) mod event;
pub(crate) mod evolve;
pub(crate) mod invariants;
pub(crate) mod rejection;

pub use apply::*;
pub use command::*;
pub use context::*;
pub use effect::*;
pub use event::*;
pub use evolve::*;
pub use invariants::*;
pub use rejection::*;
