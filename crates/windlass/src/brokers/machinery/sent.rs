//! Follow-ups that were sent although others of the same task were not, so that a retry does not send them again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The most tasks that are remembered. With more, one is forgotten, and its follow-ups may be sent again.
const TASKS_MAX: usize = 100_000;

/// By the UUID of a task: which of its follow-ups were sent.
#[derive(Default)]
pub(super) struct SentFollowUps(Mutex<BTreeMap<String, BTreeSet<usize>>>);

impl SentFollowUps {
    pub(super) fn has(&self, uuid: &str, place: usize) -> bool {
        self.sent().get(uuid).is_some_and(|places| places.contains(&place))
    }

    pub(super) fn add(&self, uuid: &str, place: usize) {
        let mut sent = self.sent();
        if sent.len() >= TASKS_MAX && !sent.contains_key(uuid) {
            sent.pop_first();
        }
        sent.entry(uuid.to_owned()).or_default().insert(place);
    }

    /// All that follows the task was sent, and its state is written: nothing is tried again.
    pub(super) fn forget(&self, uuid: &str) {
        self.sent().remove(uuid);
    }

    fn sent(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_remembered_until_it_is_forgotten() {
        let sent = SentFollowUps::default();
        sent.add("a", 1);
        assert!(sent.has("a", 1) && !sent.has("a", 0) && !sent.has("b", 1));
        sent.forget("a");
        assert!(!sent.has("a", 1));
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let sent = SentFollowUps::default();
        (0..=TASKS_MAX).for_each(|n| sent.add(&n.to_string(), 0));
        assert_eq!(sent.sent().len(), TASKS_MAX);
    }
}
