//! The state of a task: its acts, items, parameters and status.

pub(crate) mod act;
pub(crate) mod act_extras;
pub(crate) mod input;
mod limits;
pub(crate) mod members;
pub(crate) mod order;
mod queue;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod trouble;

pub use act::*;
pub use act_extras::*;
pub use input::*;
pub use limits::*;
pub use members::*;
pub use queue::*;
pub use state::*;
pub use status::*;
pub use trouble::*;
