//! Deletes what is kept too long, a little at a time.
//!
//! A task is deleted in one transaction, with its settled alarms. Its history, items, results and log lines, of which there
//! may be many, are deleted as far as the limit allows, and the rest later. The table `windlass_remains` notes what is left,
//! so that no query finds half a task. A child that succeeded stays until the topmost task above it has ended: it may still
//! be rolled back. Where events are published, a task stays until all of its events were.

use windlass_core::Millis;
use windlass_store::{Leadership, Now, Retention};

use super::{Fault, Link};

/// How long an idempotency key is kept at least, though its task may be deleted before.
pub(crate) const KEY_KEPT: Millis = Millis::from_secs(24 * 3600);

/// The latest time that is too old, for what is kept this long. What is exactly as old is deleted.
pub(crate) fn until(now: Now, kept: Millis) -> i64 {
    now.wall.0.saturating_sub_unsigned(kept.0)
}

/// Deleting, which each product does its own way.
pub(crate) trait SweepSql: Link {
    /// Deletes at most `limit` rows of what is kept too long, tasks counted as one each. Returns how many. Each transaction
    /// checks `led`.
    fn sweep(
        &mut self,
        retention: &Retention,
        led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> impl Future<Output = Result<u64, Fault>> + Send;
}
