//! What is on its way to the disk, laid over what a read of the disk finds.
//!
//! A commit reads the disk first, for what is not in memory, and is staged afterwards. A value that another commit has staged
//! meanwhile counts more than the one that was read. So a staged value stays here until it is on disk and every read that began
//! before that is over: a read that began later finds it there. Tasks stay in memory by the same rule
//! ([`Departures`](super::rest::Departures)).
//!
//! ```text
//! read      begin ─────────── finds nothing ────────── stages: the overlay has the value
//! another           stages ────────────────── on disk                                   ──▶ removed when the read is over
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Reads of the disk that are under way.
#[derive(Debug, Default)]
pub(super) struct Reads {
    clock: u64,
    /// By when they began.
    under_way: BTreeSet<u64>,
}

impl Reads {
    /// A read begins; give the number back to [`Self::end`].
    pub(super) fn begin(&mut self) -> u64 {
        self.clock += 1;
        self.under_way.insert(self.clock);
        self.clock
    }

    pub(super) fn end(&mut self, read: u64) {
        self.under_way.remove(&read);
    }

    /// The present: reads that begin from here on find what is on disk now.
    pub(super) fn now(&self) -> u64 {
        self.clock
    }

    /// Whether all reads that began by `at` are over.
    pub(super) fn are_over(&self, at: u64) -> bool {
        self.under_way.first().is_none_or(|oldest| *oldest > at)
    }
}

/// Staged values by their keys.
#[derive(Debug)]
pub(super) struct Overlay<K, V> {
    values: BTreeMap<K, V>,
    /// Values that are on disk, by when they came there.
    on_disk: VecDeque<(u64, K, V)>,
}

impl<K, V> Default for Overlay<K, V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), on_disk: VecDeque::new() }
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> Overlay<K, V> {
    /// The value that was staged last, if the disk may not have shown it.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key)
    }

    /// A value is on its way to the disk. No other change stages the same value of this key.
    pub(super) fn stage(&mut self, key: K, value: V) {
        self.values.insert(key, value);
    }

    /// A staged value is on disk.
    pub(super) fn settle(&mut self, key: K, value: V, reads: &Reads) {
        self.on_disk.push_back((reads.now(), key, value));
        self.release(reads);
    }

    /// Removes what no read can have missed.
    pub(super) fn release(&mut self, reads: &Reads) {
        while let Some((_, key, value)) = self.on_disk.pop_front_if(|(at, ..)| reads.are_over(*at)) {
            // A later value may be on its way.
            if self.values.get(&key) == Some(&value) {
                self.values.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_until_reads_that_may_have_missed_it_are_over() {
        let (mut reads, mut overlay) = (Reads::default(), Overlay::default());
        overlay.stage("key", 7);
        let early = reads.begin();
        overlay.settle("key", 7, &reads);
        let late = reads.begin();
        reads.end(late);
        overlay.release(&reads);
        assert_eq!(overlay.get(&"key"), Some(&7), "the early read may have missed it");
        reads.end(early);
        overlay.release(&reads);
        assert_eq!(overlay.get(&"key"), None);
    }

    #[test]
    fn a_later_value_stays_when_an_earlier_one_is_on_disk() {
        let (reads, mut overlay) = (Reads::default(), Overlay::default());
        overlay.stage("key", 7);
        overlay.stage("key", 8);
        overlay.settle("key", 7, &reads);
        assert_eq!(overlay.get(&"key"), Some(&8));
        overlay.settle("key", 8, &reads);
        assert_eq!(overlay.get(&"key"), None);
    }
}
