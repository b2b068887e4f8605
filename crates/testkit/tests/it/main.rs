//! The test kit on the servers it is for.

mod java;
mod proxy;
mod rabbitmq;
mod servers;
