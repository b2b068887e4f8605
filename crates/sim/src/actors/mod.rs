//! Who acts in a world: servers, workers, people, and nature.

mod caretaker;
mod commands;
mod limits;
mod nature;
mod servers;
mod submitter;
mod worker;

pub(crate) use caretaker::look_after;
pub(crate) use nature::{be_calm, rage};
pub(crate) use servers::{Live, Servers};
pub(crate) use submitter::submit_tasks;
