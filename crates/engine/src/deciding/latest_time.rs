//! Time as this server knows it: it never runs backwards from one use to the next.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use windlass_core::{Millis, Timestamp};

use windlass_store::Now;

/// The latest time that was told here.
///
/// Time comes in with calls, and a call may wait for a disk before it goes on. Two batches may be under way at once,
/// and the one that began first may be decided last: what it builds on happened before it all the same, and the history
/// of a task says so. What is handed out after a wait begins then, and not when the wait began: limits count by that.
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
    /// `now`, or the latest time told before where that is later.
    pub(crate) fn not_before(&self, now: Now) -> Now {
        let wall = self.wall.fetch_max(now.wall.0, Ordering::AcqRel).max(now.wall.0);
        let mono = self.mono.fetch_max(now.mono.0, Ordering::AcqRel).max(now.mono.0);
        Now { wall: Timestamp(wall), mono: Millis(mono) }
    }
}
