//! Time, from one place.

use windlass_core::{Millis, Timestamp};

/// The two times of one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Wall time of the store's clock. It never runs backwards.
    pub wall: Timestamp,
    /// Monotonic time since some start, for leases and timeouts.
    pub mono: Millis,
}

/// Tells the time.
pub trait Clock: Send + Sync {
    /// This instant.
    fn now(&self) -> Now;
}
