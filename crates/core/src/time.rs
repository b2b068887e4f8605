//! Points in time and lengths of time, as plain numbers passed in from outside.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Wall time by the store's clock, in milliseconds since 1970-01-01 UTC. It never runs backwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Millis(pub u64);

impl Millis {
    /// That many seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }
}

impl Add<Millis> for Timestamp {
    type Output = Self;

    fn add(self, length: Millis) -> Self {
        Self(self.0.saturating_add_unsigned(length.0))
    }
}

impl Sub for Timestamp {
    type Output = Millis;

    /// How much later this is than `earlier`; nothing when it is not.
    fn sub(self, earlier: Self) -> Millis {
        Millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}
