//! Damaged rows, restarts, and writes that are in progress or fail.

pub(crate) mod damaged;
pub(crate) mod reopening;
pub(crate) mod resting;
pub(crate) mod staged_lists;
pub(crate) mod staged_messages;
pub(crate) mod staged_races;
pub(crate) mod staging;

pub use staging::run_staging;

use crate::Case;

/// The cases of this folder.
pub(crate) fn cases() -> Vec<Case> {
    [damaged::cases(), reopening::cases()].into_iter().flatten().collect()
}
