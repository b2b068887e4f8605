//! Invariants of whole tasks.

pub(super) mod accepted;
pub(super) mod children;
pub(super) mod ending;
pub(super) mod paused;
pub(super) mod unique;
