//! Tests of the engine through its public interface.

mod access;
mod after_failures;
mod bodies;
mod brokers;
mod commits;
mod dates;
mod devices;
mod engine;
mod exchange;
mod exclusive;
mod faulty_store;
mod leaders;
mod locks;
mod malformed;
mod many_polls;
mod pausing;
mod places;
mod portions;
mod reports;
mod restarts;
mod rollouts;
mod several_servers;
mod triggers;
mod unique;
mod why;
mod world;
