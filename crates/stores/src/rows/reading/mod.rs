//! Reading: tasks and pages of tasks, flows, locks, and the other queries.

mod flow_cache;
pub(crate) mod flows;
mod listing;
pub(crate) mod load;
pub(crate) mod locks;
mod newest;
pub(crate) mod query;
mod tasks;

pub(crate) use flow_cache::{FlowCache, stored_flow};
pub(crate) use flows::Flows;
pub(crate) use listing::{Listing, only_ended};
pub(crate) use locks::free_holder_bytes;
pub(crate) use newest::Newest;
pub(crate) use tasks::{TaskParts, claimed_wait, name, of_task};
