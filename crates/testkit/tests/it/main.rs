//! The test kit on the servers it is for.

mod coordinators;
mod java;
mod proxy;
mod rabbitmq;
mod servers;
