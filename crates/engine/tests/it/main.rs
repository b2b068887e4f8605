//! Tests of the engine through its public interface.

mod after_failures;
mod commits;
mod engine;
mod exchange;
mod faulty_store;
mod leases;
mod malformed;
mod pausing;
mod reports;
mod restarts;
mod stored;
mod stores;
mod why;
mod world;
