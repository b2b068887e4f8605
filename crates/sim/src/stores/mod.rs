//! The stores of a world: the real resident store over a disk, and a database that several servers share.
//! Also the topic for their events.

mod broker;
mod database;
mod disk;
mod enqueued;
mod topic;

pub(crate) use broker::{Queues, QueuesThere, Steps};
pub(crate) use database::Database;
pub(crate) use disk::Disk;
pub(crate) use enqueued::{EnqueuedRows, EnqueuedThere};
pub(crate) use topic::{Numbers, Topics, topic};
