//! Invariants of attempts: their parameters and results, their number, and their times.

mod attempt_limits;
mod delays;
mod due_times;
mod parameters;
mod retries;
mod secrets;

use super::{Invariant, broken};
use crate::config::Config;

/// All of these invariants.
pub(super) fn all(config: &Config) -> [Box<dyn Invariant>; 6] {
    [
        Box::<attempt_limits::AttemptLimits>::default(),
        Box::<delays::Delays>::default(),
        Box::<parameters::Parameters>::default(),
        Box::new(retries::Retries::new(config)),
        Box::<secrets::Secrets>::default(),
        Box::new(due_times::DueTimes::new(config)),
    ]
}
