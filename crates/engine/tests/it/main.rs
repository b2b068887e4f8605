//! Tests of the engine through its public interface.

mod after_failures;
mod commits;
mod engine;
mod exchange;
mod faulty_store;
mod malformed;
mod pausing;
mod stored;
mod stores;
mod world;
