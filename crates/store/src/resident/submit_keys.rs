//! Idempotency keys that are on their way to the disk, or have just arrived there.
//!
//! A commit looks its keys up on disk first and stages itself afterwards. A key that reached the disk between
//! the two is still here: it is forgotten only when every lookup that began before it was on disk is over.

use std::collections::{BTreeMap, HashMap, HashSet};

use windlass_core::TaskId;

use crate::port::SubmitKey;

#[derive(Debug, Default)]
pub(super) struct SubmitKeys {
    recent: HashMap<[u8; 32], (TaskId, SubmitKey)>,
    /// Lookups under way, by when they began.
    lookups: BTreeMap<u64, ()>,
    /// Keys that are on disk, by when they got there.
    settled: Vec<(u64, [u8; 32])>,
    clock: u64,
}

impl SubmitKeys {
    /// A lookup on disk begins; give the number back to [`Self::end_lookup`].
    pub(super) fn begin_lookup(&mut self) -> u64 {
        self.clock += 1;
        self.lookups.insert(self.clock, ());
        self.clock
    }

    pub(super) fn end_lookup(&mut self, lookup: u64) {
        self.lookups.remove(&lookup);
        let oldest = self.lookups.keys().next().copied().unwrap_or(u64::MAX);
        let recent = &mut self.recent;
        self.settled.retain(|(at, scope)| {
            let needed = *at > oldest;
            if !needed {
                recent.remove(scope);
            }
            needed
        });
    }

    /// After a failed write: those that were on their way are free again. What got to the disk before is still
    /// needed by the lookups that began before.
    pub(super) fn without_staged(mut self) -> Self {
        let settled: HashSet<[u8; 32]> = self.settled.iter().map(|(_, scope)| *scope).collect();
        self.recent.retain(|scope, _| settled.contains(scope));
        self
    }

    pub(super) fn get(&self, scope: &[u8; 32]) -> Option<&(TaskId, SubmitKey)> {
        self.recent.get(scope)
    }

    pub(super) fn stage(&mut self, task: TaskId, key: &SubmitKey) {
        self.recent.insert(key.scope, (task, key.clone()));
    }

    /// The key is on disk.
    pub(super) fn settle(&mut self, key: &SubmitKey) {
        self.clock += 1;
        if self.lookups.is_empty() {
            self.recent.remove(&key.scope);
        } else {
            self.settled.push((self.clock, key.scope));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_until_lookups_that_may_have_missed_it_are_over() {
        let key = SubmitKey { scope: [1; 32], fingerprint: [2; 32] };
        let mut keys = SubmitKeys::default();
        keys.stage(TaskId(7), &key);
        let early = keys.begin_lookup();
        keys.settle(&key);
        let late = keys.begin_lookup();
        keys.end_lookup(late);
        assert!(keys.get(&key.scope).is_some(), "the early lookup may have missed it");
        keys.end_lookup(early);
        assert!(keys.get(&key.scope).is_none());
    }
}
