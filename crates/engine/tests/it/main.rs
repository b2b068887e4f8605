//! Tests of the engine through its public interface.

mod engine;
mod exchange;
mod faulty_store;
mod pausing;
mod stored;
mod stores;
mod world;
