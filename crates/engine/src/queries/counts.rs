//! How much was committed and announced, for those who measure.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the committers and the outbox relay of a server have done since its start.
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

    /// Changes of tasks, locks and alarms that others had changed meanwhile: they were decided again.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Events that a broker has confirmed to have heard.
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
