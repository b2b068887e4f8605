//! What the worker has to say: reports that wait for a call, and the calls that may be under way.
//!
//! There is no timer: while calls are under way reports pile up, and the next call takes them all. So the busier
//! the worker, the more reports share a call.

use std::collections::VecDeque;

use windlass_api::Payload;

use super::Token;

/// How many report calls may be under way at a time: one is committed while the next one travels.
const CALLS_MAX: usize = 2;

/// How many reports go in one call. The server sets no limit but the bytes of a body; it commits up to 4,096 things
/// at a time, so that a call of this size shares its commit with those of other workers.
const BATCH_REPORTS_MAX: usize = 1000;

/// How many bytes of reports go in one call: half of what the server takes.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A report on its way.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) token: Token,
    pub(super) kind: Kind,
    pub(super) report: Payload,
}

/// What the answer to a report means for its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The attempt is to become the worker's own: it begins once this was accepted.
    Taking,
    /// The attempt goes on.
    Running,
    /// The attempt is over once this was answered.
    Final,
    /// The same, in place of a report that the server found malformed.
    Replacement,
}

/// Reports in the order in which they came up.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    items: VecDeque<Item>,
    calls: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    /// What the next call takes, if there is something and a call may be made; the call is under way now.
    pub(super) fn take_batch(&mut self) -> Option<Vec<Item>> {
        if self.calls >= CALLS_MAX || self.items.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let mut count = 0;
        for item in self.items.iter().take(BATCH_REPORTS_MAX) {
            bytes += item.report.get().len() + 1;
            // One report always goes: a batch of none would wait for ever.
            if bytes > BATCH_BYTES_MAX && count > 0 {
                break;
            }
            count += 1;
        }
        self.calls += 1;
        Some(self.items.drain(..count).collect())
    }

    /// A call was answered.
    pub(super) fn answered(&mut self) {
        self.calls -= 1;
    }

    /// A call was lost: its reports go first in the next one.
    pub(super) fn put_back(&mut self, batch: Vec<Item>) {
        self.calls -= 1;
        for item in batch.into_iter().rev() {
            self.items.push_front(item);
        }
    }

    /// Whether a call could be made at once.
    pub(super) fn wants_call(&self) -> bool {
        self.calls < CALLS_MAX && !self.items.is_empty()
    }

    /// How many reports were not answered yet, not counting those under way.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing waits and no call is under way.
    pub(super) fn is_done(&self) -> bool {
        self.items.is_empty() && self.calls == 0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn item(token: &str, bytes: usize) -> Item {
        let report = to_raw_value(&"x".repeat(bytes)).unwrap();
        Item { token: token.into(), kind: Kind::Final, report }
    }

    fn tokens(batch: &[Item]) -> Vec<&str> {
        batch.iter().map(|item| &*item.token).collect()
    }

    #[test]
    fn what_piles_up_while_two_calls_are_under_way_goes_in_the_third() {
        let mut outbox = Outbox::default();
        outbox.push(item("a", 1));
        assert_eq!(tokens(&outbox.take_batch().unwrap()), ["a"]);
        assert!(outbox.take_batch().is_none(), "an empty call was made");
        outbox.push(item("b", 1));
        outbox.take_batch().unwrap();
        outbox.push(item("c", 1));
        outbox.push(item("d", 1));
        assert!(outbox.take_batch().is_none() && !outbox.wants_call());
        outbox.answered();
        assert_eq!(tokens(&outbox.take_batch().unwrap()), ["c", "d"]);
        outbox.answered();
        assert!(!outbox.is_done());
        outbox.answered();
        assert!(outbox.is_done());
    }

    #[test]
    fn a_lost_call_goes_again_first_and_in_order() {
        let mut outbox = Outbox::default();
        outbox.push(item("a", 1));
        outbox.push(item("b", 1));
        let batch = outbox.take_batch().unwrap();
        outbox.push(item("c", 1));
        outbox.put_back(batch);
        assert_eq!(tokens(&outbox.take_batch().unwrap()), ["a", "b", "c"]);
    }

    #[test]
    fn a_batch_is_bounded_in_number_and_bytes() {
        let mut outbox = Outbox::default();
        for _ in 0..BATCH_REPORTS_MAX + 1 {
            outbox.push(item("a", 1));
        }
        assert_eq!(outbox.take_batch().unwrap().len(), BATCH_REPORTS_MAX);
        assert_eq!(outbox.take_batch().unwrap().len(), 1);

        let mut outbox = Outbox::default();
        for token in ["a", "b", "c"] {
            outbox.push(item(token, BATCH_BYTES_MAX / 2 - 100));
        }
        outbox.push(item("d", BATCH_BYTES_MAX * 2));
        assert_eq!(tokens(&outbox.take_batch().unwrap()), ["a", "b"]);
        outbox.answered();
        assert_eq!(tokens(&outbox.take_batch().unwrap()), ["c"]);
        outbox.answered();
        assert_eq!(tokens(&outbox.take_batch().unwrap()), ["d"]);
    }
}
