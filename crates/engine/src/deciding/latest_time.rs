//! A clock reading that never goes backwards on this server.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use windlass_core::{Millis, Timestamp};

use windlass_store::Now;

/// The latest time that this server has used.
///
/// Callers pass the time in, and a call may wait for a disk before it continues. Two batches may be in progress at
/// once, and the one that began first may be decided last. Its decisions build on those of the other, so the history of
/// a task must show them later. An attempt that is claimed after a wait starts at the end of the wait, not at its
/// beginning: limits depend on that.
#[derive(Debug)]
pub(crate) struct LatestTime {
    wall: AtomicI64,
    mono: AtomicU64,
}

impl Default for LatestTime {
    fn default() -> Self {
        Self { wall: AtomicI64::new(i64::MIN), mono: AtomicU64::new(0) }
    }
}

impl LatestTime {
    /// `now`, or the latest time used before if that is later.
    pub(crate) fn not_before(&self, now: Now) -> Now {
        let wall = self.wall.fetch_max(now.wall.0, Ordering::AcqRel).max(now.wall.0);
        let mono = self.mono.fetch_max(now.mono.0, Ordering::AcqRel).max(now.mono.0);
        Now { wall: Timestamp(wall), mono: Millis(mono) }
    }
}
