//! How many devices may be started now, and when the next ones.

use crate::{Millis, RolloutRate};

const MINUTE_MS: u64 = 60_000;

impl RolloutRate {
    /// The number of devices per minute once this many have succeeded.
    #[must_use]
    pub fn per_minute(&self, succeeded: u64) -> u32 {
        /// Parts of a device: a rate of 1 that grows by a tenth is 1.1.
        const PARTS: u64 = 1_000_000;
        match *self {
            Self::Constant { per_minute } => per_minute,
            Self::Exponential { base, factor_percent, per_minute_max, after } => {
                let (mut rate, most) = (u64::from(base) * PARTS, u64::from(per_minute_max) * PARTS);
                // The rate grows by 1 % at least, so the maximum is reached after about 1,100 rounds.
                for _ in 0..succeeded / u64::from(after.max(1)) {
                    rate = (rate * u64::from(factor_percent) / 100).min(most);
                    if rate == most {
                        break;
                    }
                }
                u32::try_from(rate / PARTS).unwrap_or(per_minute_max)
            }
        }
    }
}

/// The most devices that are started at once: those of a second.
pub(super) fn portion(per_minute: u32) -> u32 {
    per_minute.div_ceil(60)
}

/// The time until further devices may be started after `started` ones. In no minute are more than `per_minute` started, wherever
/// it begins: the time is a little longer than an even spread takes, by what the first portion of a minute has ahead.
pub(super) fn pause_after(started: u32, per_minute: u32) -> Millis {
    let spread = u64::from(per_minute - portion(per_minute) + 1);
    Millis((u64::from(started) * MINUTE_MS).div_ceil(spread))
}
