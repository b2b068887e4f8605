//! What the engine needs from outside, as small object-safe traits.

mod clock;
mod store;

pub use clock::*;
pub use store::*;
