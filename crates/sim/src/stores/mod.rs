//! The stores of a world: the real resident store over a disk, and a database that several servers share.
//! Also the topic for their events, and the brokers of modules and of devices.

mod broker;
mod database;
mod disk;
mod enqueued;
mod mqtt;
mod mqtt_client;
mod topic;

pub(crate) use broker::{Queues, QueuesThere, Steps};
pub(crate) use database::Database;
pub(crate) use disk::Disk;
pub(crate) use enqueued::{EnqueuedRows, EnqueuedThere};
pub(crate) use mqtt::{Answered, Mqtt, MqttEvent, Published, job_of};
pub(crate) use mqtt_client::MqttThere;
pub(crate) use topic::{Numbers, Topics, topic};
