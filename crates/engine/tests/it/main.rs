//! Tests of the engine through its public interface.

mod engine;
mod stored;
mod stores;
mod world;
