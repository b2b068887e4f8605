//! The unsent reports of a worker, and the number of report calls in flight.
//!
//! No timer is involved: while calls are in flight, reports accumulate, and the next call takes them all. So the
//! busier the worker, the more reports share a call.

use std::collections::VecDeque;

use windlass_api::Payload;

use super::Token;

/// The most report calls in flight: the server commits one while the next one travels.
const CALLS_MAX: usize = 2;

/// The most reports in one call. The server only limits the bytes of a body. It commits up to 4,096 requests
/// at a time, so a call of this size shares its commit with those of other workers.
const BATCH_REPORTS_MAX: usize = 1000;

/// The most bytes of reports in one call: half of the server's limit.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A report to send.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) token: Token,
    pub(super) kind: Kind,
    pub(super) report: Payload,
}

/// What the answer to a report means for its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A claim: the attempt starts once it is accepted.
    Taking,
    /// The attempt continues.
    Running,
    /// The attempt is finished once this is answered.
    Final,
    /// The same, after the server refused the original report as malformed.
    Replacement,
}

/// The reports, in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    items: VecDeque<Item>,
    calls: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    /// The reports of the next call, if there are any and a call may be made. The call then counts as in
    /// flight.
    pub(super) fn take_batch(&mut self) -> Option<Vec<Item>> {
        if self.calls >= CALLS_MAX || self.items.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let mut count = 0;
        for item in self.items.iter().take(BATCH_REPORTS_MAX) {
            bytes += item.report.get().len() + 1;
            // Send at least one report: an empty batch would wait for ever.
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

    /// Whether a call could be made now.
    pub(super) fn wants_call(&self) -> bool {
        self.calls < CALLS_MAX && !self.items.is_empty()
    }

    /// The number of reports that wait, without those in flight.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no report waits and no call is in flight.
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
