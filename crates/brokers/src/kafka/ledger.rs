//! Tracks messages that have arrived, which are in flight, and how far each partition is done.
//!
//! Kafka stores one offset per partition: all messages before it are done. So a message acknowledged before
//! an earlier one is only recorded here, and the committed offset is that of the earliest message that is not
//! done.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{Message, Receipt};

/// The place of a message: its partition, the number of that partition's assignment to this program, and its
/// offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) partition: i32,
    pub(super) handover: u64,
    pub(super) offset: i64,
}

impl Place {
    pub(super) fn receipt(self) -> Receipt {
        Receipt(format!("{}:{}:{}", self.partition, self.handover, self.offset).into())
    }

    pub(super) fn of(receipt: &Receipt) -> Option<Self> {
        let mut parts = receipt.0.split(':');
        let partition = parts.next()?.parse().ok()?;
        let handover = parts.next()?.parse().ok()?;
        let offset = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { partition, handover, offset })
    }
}

/// The messages of one consumer.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    partitions: BTreeMap<i32, Partition>,
    /// Messages to hand out.
    waiting: VecDeque<(Place, Message)>,
    /// The bytes of their bodies.
    waiting_bytes: usize,
    /// Messages in flight, kept in case they are given back.
    in_hands: BTreeMap<Place, Message>,
    /// For each partition assigned earlier: its last assignment, and the offset committed in that.
    /// A caller that waits for its commit may look only after the partition has gone.
    gone: BTreeMap<i32, (u64, Option<i64>)>,
}

/// Counts the assignments of partitions to all consumers of this program: a receipt of an earlier consumer
/// must be invalid for a later one.
static HANDOVERS: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
struct Partition {
    handover: u64,
    /// The offset after the last message that has arrived.
    next: Option<i64>,
    /// Messages that have arrived and are not done.
    open: BTreeSet<i64>,
    /// The committed offset.
    committed: Option<i64>,
    /// Whether the partition is about to be reassigned: then nothing more of it is handed out.
    leaving: bool,
}

impl Ledger {
    /// A partition was assigned to this consumer.
    pub(super) fn assign(&mut self, partition: i32) {
        self.forget(partition);
        let handover = HANDOVERS.fetch_add(1, Ordering::Relaxed);
        let fresh =
            Partition { handover, next: None, open: BTreeSet::new(), committed: None, leaving: false };
        self.partitions.insert(partition, fresh);
    }

    /// A partition will be reassigned: its waiting messages are dropped.
    pub(super) fn prepare_to_leave(&mut self, partition: i32) {
        if let Some(partition) = self.partitions.get_mut(&partition) {
            partition.leaving = true;
        }
        self.drop_waiting(partition);
    }

    /// A partition was reassigned. Its messages in flight can no longer be settled here.
    pub(super) fn forget(&mut self, partition: i32) {
        if let Some(known) = self.partitions.remove(&partition) {
            self.gone.insert(partition, (known.handover, known.committed));
        }
        self.drop_waiting(partition);
        self.in_hands.retain(|place, _| place.partition != partition);
    }

    /// A message has arrived.
    pub(super) fn arrive(&mut self, partition: i32, offset: i64, message: Message) {
        let Some(known) = self.partitions.get(&partition) else { return };
        if known.next.is_some_and(|next| offset < next) {
            // The topic was created again, or its end was lost: the recorded offsets are no longer valid.
            self.assign(partition);
        }
        let Some(known) = self.partitions.get_mut(&partition) else { return };
        known.next = Some(offset + 1);
        if known.leaving {
            return;
        }
        known.open.insert(offset);
        let place = Place { partition, handover: known.handover, offset };
        self.wait(place, message);
    }

    fn wait(&mut self, place: Place, message: Message) {
        self.waiting_bytes += message.body.len();
        self.waiting.push_back((place, message));
    }

    fn drop_waiting(&mut self, partition: i32) {
        self.waiting.retain(|(place, _)| place.partition != partition);
        self.waiting_bytes = self.waiting.iter().map(|(_, message)| message.body.len()).sum();
    }

    /// Hands out the next message.
    pub(super) fn hand_out(&mut self) -> Option<(Place, Message)> {
        let (place, message) = self.waiting.pop_front()?;
        self.waiting_bytes -= message.body.len();
        self.in_hands.insert(place, message.clone());
        Some((place, message))
    }

    /// Whether a message is in flight.
    pub(super) fn has(&self, place: Place) -> bool {
        self.in_hands.contains_key(&place)
    }

    /// Marks a message as done. False if its partition was reassigned.
    pub(super) fn done(&mut self, place: Place) -> bool {
        let known = self.partitions.get_mut(&place.partition);
        let Some(known) = known.filter(|known| known.handover == place.handover) else { return false };
        self.in_hands.remove(&place);
        known.open.remove(&place.offset);
        true
    }

    /// Queues a message again. False if its partition was reassigned.
    pub(super) fn give_back(&mut self, place: Place) -> bool {
        let Some(message) = self.in_hands.remove(&place) else { return false };
        if !self.partitions.get(&place.partition).is_some_and(|known| known.leaving) {
            self.wait(place, message);
        }
        true
    }

    /// The offset to commit: everything before it is done. None if it is already committed.
    pub(super) fn to_commit(&self, partition: i32) -> Option<i64> {
        let known = self.partitions.get(&partition)?;
        // Messages that have not arrived are not done; the last one that has arrived is open or done.
        let done = known.open.first().copied().or(known.next)?;
        (known.committed != Some(done)).then_some(done)
    }

    /// An offset was committed.
    pub(super) fn committed(&mut self, partition: i32, offset: i64) {
        if let Some(known) = self.partitions.get_mut(&partition) {
            known.committed = known.committed.max(Some(offset));
        }
    }

    /// Whether the group knows that everything before `offset` is done; none if this consumer can no longer
    /// commit it.
    pub(super) fn is_committed(&self, partition: i32, handover: u64, offset: i64) -> Option<bool> {
        match self.partitions.get(&partition) {
            Some(known) if known.handover == handover => Some(known.committed >= Some(offset)),
            _ => {
                let (last, committed) = self.gone.get(&partition)?;
                (*last == handover && *committed >= Some(offset)).then_some(true)
            }
        }
    }

    /// The assigned partitions.
    pub(super) fn partitions(&self) -> impl Iterator<Item = i32> {
        self.partitions.keys().copied()
    }

    /// The number of messages of a partition in flight.
    pub(super) fn in_hands_of(&self, partition: i32) -> usize {
        self.in_hands.keys().filter(|place| place.partition == partition).count()
    }

    /// The number of messages in flight.
    pub(super) fn in_hands(&self) -> usize {
        self.in_hands.len()
    }

    /// The number of waiting messages.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The bytes of waiting messages.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(partition: i32, offsets: &[i64]) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.assign(partition);
        for offset in offsets {
            ledger.arrive(partition, *offset, Message::new(offset.to_string(), "", "x"));
        }
        ledger
    }

    fn take(ledger: &mut Ledger, count: usize) -> Vec<Place> {
        (0..count).map(|_| ledger.hand_out().unwrap().0).collect()
    }

    #[test]
    fn what_is_done_early_waits_for_what_came_before() {
        let mut ledger = ledger(1, &[5, 6, 8]);
        let places = take(&mut ledger, 3);
        assert_eq!(ledger.to_commit(1), Some(5));
        ledger.committed(1, 5);
        assert_eq!(ledger.to_commit(1), None);
        assert!(ledger.done(places[1]));
        assert!(ledger.done(places[2]));
        assert_eq!(ledger.to_commit(1), None);
        assert!(ledger.done(places[0]));
        assert_eq!(ledger.to_commit(1), Some(9));
        ledger.committed(1, 9);
        ledger.committed(1, 6);
        assert_eq!(ledger.is_committed(1, places[0].handover, 9), Some(true));
    }

    #[test]
    fn what_is_given_back_is_not_done_and_comes_again() {
        let mut ledger = ledger(1, &[0, 1]);
        let places = take(&mut ledger, 2);
        assert!(ledger.give_back(places[0]));
        assert!(!ledger.give_back(places[0]), "it is not in flight any more");
        assert!(ledger.done(places[1]));
        assert_eq!(ledger.to_commit(1), Some(0));
        assert_eq!(take(&mut ledger, 1), [places[0]]);
    }

    #[test]
    fn receipts_of_a_partition_that_left_settle_nothing() {
        let mut ledger = ledger(1, &[0, 1, 2]);
        let places = take(&mut ledger, 2);
        ledger.prepare_to_leave(1);
        assert_eq!((ledger.waiting(), ledger.in_hands_of(1)), (0, 2));
        assert!(ledger.done(places[0]), "it may be done until it is gone");
        assert!(ledger.give_back(places[1]));
        assert_eq!(ledger.waiting(), 0, "the next owner gets it");
        assert_eq!(ledger.to_commit(1), Some(1));
        ledger.forget(1);
        ledger.assign(1);
        assert!(!ledger.done(places[1]));
        assert_eq!(ledger.to_commit(1), None, "nothing came since");
    }

    #[test]
    fn what_was_told_in_time_was_told_though_the_partition_has_gone() {
        let mut ledger = ledger(1, &[0, 1]);
        let place = take(&mut ledger, 1)[0];
        assert!(ledger.done(place));
        ledger.committed(1, 1);
        for _ in 0..2 {
            assert_eq!(ledger.is_committed(1, place.handover, 1), Some(true));
            ledger.forget(1);
            assert_eq!(ledger.is_committed(1, place.handover, 2), None, "it was not committed");
        }
        ledger.assign(1);
        assert_eq!(ledger.is_committed(1, place.handover, 1), Some(true));
    }

    #[test]
    fn offsets_that_begin_anew_are_a_new_topic() {
        let mut ledger = ledger(1, &[7, 8]);
        let old = take(&mut ledger, 1)[0];
        ledger.arrive(1, 0, Message::new("0", "", "x"));
        assert!(!ledger.has(old) && !ledger.done(old));
        assert_eq!(take(&mut ledger, 1)[0].offset, 0);
        assert_eq!(ledger.to_commit(1), Some(0));
    }

    #[test]
    fn receipts_of_another_ledger_settle_nothing() {
        let old = take(&mut ledger(1, &[0]), 1)[0];
        let mut new = ledger(1, &[0]);
        assert!(!new.done(old) && !new.give_back(old));
    }

    #[test]
    fn a_receipt_says_where_its_message_is() {
        let place = Place { partition: 3, handover: 2, offset: 70_000_000_000 };
        assert_eq!(Place::of(&place.receipt()), Some(place));
        for wrong in ["", "1:2", "1:2:3:4", "a:b:c"] {
            assert_eq!(Place::of(&Receipt(wrong.into())), None);
        }
    }
}
