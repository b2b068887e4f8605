//! Limits and defaults of a task's attempts and signals.

use crate::Millis;

/// By how much earlier one more priority level counts.
pub const PRIORITY_STEP_MS: i64 = 60_000;

/// Priorities range from minus this to this.
pub const PRIORITY_MAX: i8 = 10;

/// The default number of lost attempts of one execution before it is held as poisoned.
pub const DEATHS_MAX: u32 = 3;

/// The maximum of deaths that a flow may allow: each of them may have killed a worker.
pub const DEATHS_LIMIT: u32 = 1000;

/// The maximum number of signals kept until their steps wait for them.
pub const SIGNALS_MAX: usize = 100;

/// The maximum number of postponements of an execution.
pub const POSTPONEMENTS_MAX: u32 = 100;

/// The default wait of a postponed attempt.
pub const POSTPONE_DEFAULT: Millis = Millis::from_secs(10);
