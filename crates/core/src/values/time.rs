//! Points in time and durations, as plain numbers passed in from outside.

use std::{
    fmt,
    ops::{Add, Sub},
};

use serde::{Deserialize, Serialize};

/// Wall time of the store's clock, in milliseconds since 1970-01-01 UTC. It never runs backwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

/// A duration in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Millis(pub u64);

impl Millis {
    /// A duration of `secs` seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }

    /// The duration after this number of doublings, of which at most 20 count.
    #[must_use]
    pub fn doubled(self, times: u32) -> Self {
        Self(self.0.saturating_mul(1 << times.min(20)))
    }
}

impl fmt::Display for Millis {
    /// For humans: `1h 30m`, `5s`, `250ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let parts =
            [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s"), (self.0 % 1000, "ms")];
        let mut space = "";
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{space}{count}{unit}")?;
            space = " ";
        }
        if self.0 == 0 { f.write_str("0s") } else { Ok(()) }
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

    /// How much later this is than `earlier`; 0 if it is not later.
    fn sub(self, earlier: Self) -> Millis {
        Millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_people_say_them() {
        for (ms, text) in
            [(0, "0s"), (250, "250ms"), (300_000, "5m"), (90_500, "1m 30s 500ms"), (176_400_000, "49h")]
        {
            assert_eq!(Millis(ms).to_string(), text);
        }
    }
}
