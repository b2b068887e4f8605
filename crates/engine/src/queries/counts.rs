//! Counts of committed and announced items, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The work of the committers and the outbox relay of a server since its start.
#[derive(Debug, Default)]
pub struct Counts {
    batches: AtomicU64,
    items: AtomicU64,
    conflicts: AtomicU64,
    announced: AtomicU64,
}

impl Counts {
    /// Batches decided and committed.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Submits, reports and other items in them.
    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    /// Conflicting changes of tasks, locks and alarms: their items were decided again.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Events that a broker has confirmed.
    pub fn announced(&self) -> u64 {
        self.announced.load(Ordering::Relaxed)
    }

    pub(crate) fn announce(&self, events: usize) {
        self.announced.fetch_add(events as u64, Ordering::Relaxed);
    }

    pub(crate) fn conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn batch(&self, items: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(items as u64, Ordering::Relaxed);
    }
}
