//! Tests of the engine through its public interface.

mod engine;
mod pausing;
mod stored;
mod stores;
mod world;
