//! What the member of a group and its consumer both see.

use std::{
    collections::BTreeSet,
    mem,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use rdkafka::{TopicPartitionList, error::KafkaError};
use tokio::sync::Notify;

use crate::{
    BrokerError, Queue,
    kafka::{ledger::Ledger, reason::Reason},
};

/// The longest that a partition waits for what is in hands before it goes to its next owner.
const HANDOVER_MAX: Duration = Duration::from_secs(60);

/// How long the group may take to hear of what is done before it is told again.
const COMMIT_MAX: Duration = Duration::from_secs(5);

/// What the member and the consumer both see.
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) silent_after: Duration,
    /// Why the member has no connection.
    pub(super) reason: Reason,
    state: Mutex<State>,
    /// Something arrived, was committed, or went wrong.
    pub(super) changed: Notify,
    /// There is something for the member to do.
    pub(super) turn: Notify,
}

/// What is behind the lock.
#[derive(Default)]
pub(super) struct State {
    pub(super) ledger: Ledger,
    /// What went wrong, and nobody was told of yet.
    failure: Option<BrokerError>,
    /// Whether the member is of no use any more.
    is_broken: bool,
    /// Partitions of which there is something to commit.
    to_commit: BTreeSet<i32>,
    /// Partitions of which something is being committed.
    committing: BTreeSet<i32>,
    /// Since when.
    committing_since: Option<Instant>,
    leaving: Vec<Leaving>,
    /// Whether no server of the cluster was to be had when something was heard last.
    pub(super) is_away: bool,
    /// Whether the cluster let us do nothing when something was heard last. The member goes on by itself when it does, and
    /// does not tell.
    pub(super) is_refused: bool,
    /// Whether partitions go at once from now on.
    pub(super) is_closing: bool,
}

/// Partitions that are to go to somebody else together.
struct Leaving {
    partitions: TopicPartitionList,
    since: Instant,
    /// When whoever has something of it in hands is taken for dead.
    silent_at: Instant,
}

impl Shared {
    pub(super) fn new(queue: Queue, silent_after: Duration) -> Self {
        Self {
            queue,
            silent_after,
            reason: Reason::default(),
            state: Mutex::default(),
            changed: Notify::new(),
            turn: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Lets the member look at what there is to do.
    pub(super) fn turn(&self) {
        self.turn.notify_one();
    }

    /// What went wrong, once, and whether the member is of no use any more.
    pub(super) fn failure(&self) -> Option<(bool, BrokerError)> {
        let mut state = self.lock();
        let failure = state.failure.take()?;
        Some((state.is_broken, failure))
    }

    /// Something went wrong, and whoever waits is to be told.
    pub(super) fn fail(&self, error: &KafkaError) {
        let failure = self.reason.explain(&self.queue, error);
        let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
        let mut state = self.lock();
        state.is_broken |= is_fatal || matches!(failure, BrokerError::NoQueue(_));
        state.is_refused |= matches!(failure, BrokerError::Refused(_));
        state.failure = Some(failure);
        drop(state);
        self.changed.notify_waiters();
    }
}

impl State {
    /// These partitions have something to commit.
    pub(super) fn commit_soon(&mut self, partitions: impl Iterator<Item = i32>) {
        self.to_commit.extend(partitions);
    }

    /// Whoever has something of this partition in hands is alive.
    pub(super) fn hear_of(&mut self, partition: i32, silent_after: Duration) {
        for leaving in &mut self.leaving {
            if numbers(&leaving.partitions).any(|number| number == partition) {
                leaving.silent_at = Instant::now() + silent_after;
            }
        }
    }

    /// These are to go to somebody else when nothing of them is in hands.
    pub(super) fn prepare_to_leave(&mut self, partitions: &TopicPartitionList, silent_after: Duration) {
        numbers(partitions).for_each(|partition| self.ledger.prepare_to_leave(partition));
        let since = Instant::now();
        let silent_at = since + silent_after;
        self.leaving.push(Leaving { partitions: partitions.clone(), since, silent_at });
    }

    /// Those that are still to go, where it is no longer waited for anything.
    pub(super) fn give_up(&mut self) -> Vec<TopicPartitionList> {
        self.is_closing = true;
        mem::take(&mut self.leaving).into_iter().map(|leaving| leaving.partitions).collect()
    }

    /// The group was told of these, or they have to be told again.
    pub(super) fn end_commit(&mut self, commits: &[(i32, i64)], went_well: bool) {
        self.committing.clear();
        for (partition, offset) in commits {
            if went_well {
                self.ledger.committed(*partition, *offset);
            } else {
                // While the group divides its partitions it hears of nothing else: once more.
                self.to_commit.insert(*partition);
            }
        }
    }

    /// What is to be committed now: nothing while something is under way.
    pub(super) fn commits(&mut self, now: Instant) -> Vec<(i32, i64)> {
        if !self.committing.is_empty() {
            if self.committing_since.is_some_and(|since| now < since + COMMIT_MAX) {
                return Vec::new();
            }
            // The library was seen to lose one when a server stood still: whoever waits for that waits for ever.
            self.to_commit.append(&mut self.committing);
        }
        self.committing_since = Some(now);
        let partitions = mem::take(&mut self.to_commit).into_iter();
        let commits = partitions.filter_map(|partition| Some((partition, self.ledger.to_commit(partition)?)));
        let commits: Vec<(i32, i64)> = commits.collect();
        self.committing = commits.iter().map(|(partition, _)| *partition).collect();
        commits
    }

    /// Those that may go now.
    pub(super) fn gone(&mut self) -> Vec<TopicPartitionList> {
        let now = Instant::now();
        let is_idle = |partition: i32| self.ledger.in_hands_of(partition) == 0;
        let is_told =
            |partition: i32| !self.to_commit.contains(&partition) && !self.committing.contains(&partition);
        let may_go = |leaving: &Leaving| {
            // Who is silent loses what is in his hands; what he has done before is told all the same.
            let is_done = numbers(&leaving.partitions).all(is_idle) || now >= leaving.silent_at;
            is_done && numbers(&leaving.partitions).all(is_told) || now >= leaving.since + HANDOVER_MAX
        };
        let leaving = mem::take(&mut self.leaving);
        let (gone, staying): (Vec<Leaving>, Vec<Leaving>) = leaving.into_iter().partition(may_go);
        self.leaving = staying;
        for partition in gone.iter().flat_map(|leaving| numbers(&leaving.partitions).collect::<Vec<_>>()) {
            self.ledger.forget(partition);
        }
        gone.into_iter().map(|leaving| leaving.partitions).collect()
    }
}

/// The partitions of a list.
pub(super) fn numbers(list: &TopicPartitionList) -> impl Iterator<Item = i32> {
    list.elements().into_iter().map(|element| element.partition()).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, kafka::ledger::Place};

    /// Partition 1, with these in hands and about to leave for somebody else.
    fn leaving(offsets: &[i64], silent_after: Duration) -> (State, Vec<Place>) {
        let mut state = State::default();
        state.ledger.assign(1);
        for offset in offsets {
            state.ledger.arrive(1, *offset, Message::new("", "", "x"));
        }
        let places = offsets.iter().map(|_| state.ledger.hand_out().unwrap().0).collect();
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition("topic", 1);
        state.prepare_to_leave(&partitions, silent_after);
        (state, places)
    }

    #[test]
    fn a_partition_stays_until_what_is_done_is_told() {
        // Its holder may say nothing any more, now that he has nothing in hands.
        let (mut state, places) = leaving(&[7], Duration::ZERO);
        assert!(state.ledger.done(places[0]));
        state.commit_soon([1].into_iter());
        assert!(state.gone().is_empty());
        assert_eq!(state.commits(Instant::now()), [(1, 8)]);
        assert!(state.gone().is_empty());
        state.end_commit(&[(1, 8)], false);
        assert!(state.gone().is_empty(), "it has to be told again");
        assert_eq!(state.commits(Instant::now()), [(1, 8)]);
        state.end_commit(&[(1, 8)], true);
        assert_eq!(state.gone().len(), 1);
    }

    #[test]
    fn a_commit_that_is_never_answered_is_made_again() {
        let (mut state, places) = leaving(&[7], Duration::ZERO);
        assert!(state.ledger.done(places[0]));
        state.commit_soon([1].into_iter());
        let begun = Instant::now();
        assert_eq!(state.commits(begun), [(1, 8)]);
        assert_eq!(state.commits(begun + COMMIT_MAX / 2), []);
        assert_eq!(state.commits(begun + COMMIT_MAX), [(1, 8)]);
        assert_eq!(state.commits(begun + COMMIT_MAX), []);
    }

    #[test]
    fn a_partition_stays_with_who_has_something_of_it_and_is_heard_of() {
        let (mut state, places) = leaving(&[7, 8], Duration::from_secs(60));
        assert!(state.ledger.done(places[0]));
        assert!(state.gone().is_empty());
        assert!(state.ledger.done(places[1]));
        assert_eq!(state.gone().len(), 1);

        let (mut state, _) = leaving(&[7], Duration::ZERO);
        assert_eq!(state.gone().len(), 1, "he is silent");
        assert_eq!(state.ledger.in_hands(), 0);
    }
}
