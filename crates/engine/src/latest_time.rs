//! Time as this server's batches see it: it never runs backwards from one to the next.

use std::sync::atomic::{AtomicI64, Ordering};

use windlass_core::Timestamp;

use crate::ports::Now;

/// The latest wall time at which something was decided here.
///
/// Two batches may be under way at once, and the one that began first may be decided last. What it builds on happened
/// before it all the same, and the history of a task says so.
#[derive(Debug)]
pub(crate) struct LatestTime(AtomicI64);

impl Default for LatestTime {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl LatestTime {
    /// `now`, or the latest time told before where that is later.
    pub(crate) fn not_before(&self, now: Now) -> Now {
        let latest = self.0.fetch_max(now.wall.0, Ordering::AcqRel).max(now.wall.0);
        Now { wall: Timestamp(latest), ..now }
    }
}
