//! State shared by the member of a group and its consumer.

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

/// The longest that a partition waits for its messages in flight before it is released.
const HANDOVER_MAX: Duration = Duration::from_secs(60);

/// How long a commit may take before it is repeated.
const COMMIT_MAX: Duration = Duration::from_secs(5);

/// State shared by the member and the consumer.
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) silent_after: Duration,
    /// The reason why the member has no connection.
    pub(super) reason: Reason,
    state: Mutex<State>,
    /// Signals that a message arrived, a commit ended, or an error occurred.
    pub(super) changed: Notify,
    /// Signals that the member has something to do.
    pub(super) turn: Notify,
}

/// The state behind the mutex.
#[derive(Default)]
pub(super) struct State {
    pub(super) ledger: Ledger,
    /// The last error that has not been reported yet.
    failure: Option<BrokerError>,
    /// Whether the member is unusable.
    is_broken: bool,
    /// Partitions with an offset to commit.
    to_commit: BTreeSet<i32>,
    /// Partitions with a commit in flight.
    committing: BTreeSet<i32>,
    /// When that commit started.
    committing_since: Option<Instant>,
    leaving: Vec<Leaving>,
    /// Whether no server of the cluster was reachable, according to the last report.
    pub(super) is_away: bool,
    /// Whether the cluster denied access, according to the last report. The member continues by itself once
    /// access is granted again, without a report.
    pub(super) is_refused: bool,
    /// Whether partitions are released at once from now on.
    pub(super) is_closing: bool,
}

/// Partitions that are released together.
struct Leaving {
    partitions: TopicPartitionList,
    since: Instant,
    /// When the holder of their messages in flight counts as dead.
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

    /// Makes the member check for work.
    pub(super) fn turn(&self) {
        self.turn.notify_one();
    }

    /// The last error, once, and whether the member is unusable.
    pub(super) fn failure(&self) -> Option<(bool, BrokerError)> {
        let mut state = self.lock();
        let failure = state.failure.take()?;
        Some((state.is_broken, failure))
    }

    /// Records an error and wakes the waiting caller.
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
    /// Marks partitions as having an offset to commit.
    pub(super) fn commit_soon(&mut self, partitions: impl Iterator<Item = i32>) {
        self.to_commit.extend(partitions);
    }

    /// The holder of messages of this partition is alive.
    pub(super) fn hear_of(&mut self, partition: i32, silent_after: Duration) {
        for leaving in &mut self.leaving {
            if numbers(&leaving.partitions).any(|number| number == partition) {
                leaving.silent_at = Instant::now() + silent_after;
            }
        }
    }

    /// Prepares to release partitions once none of their messages is in flight.
    pub(super) fn prepare_to_leave(&mut self, partitions: &TopicPartitionList, silent_after: Duration) {
        numbers(partitions).for_each(|partition| self.ledger.prepare_to_leave(partition));
        let since = Instant::now();
        let silent_at = since + silent_after;
        self.leaving.push(Leaving { partitions: partitions.clone(), since, silent_at });
    }

    /// The partitions still to release, without further waiting.
    pub(super) fn give_up(&mut self) -> Vec<TopicPartitionList> {
        self.is_closing = true;
        mem::take(&mut self.leaving).into_iter().map(|leaving| leaving.partitions).collect()
    }

    /// Records the result of a commit.
    pub(super) fn end_commit(&mut self, commits: &[(i32, i64)], went_well: bool) {
        self.committing.clear();
        for (partition, offset) in commits {
            if went_well {
                self.ledger.committed(*partition, *offset);
            } else {
                // During a rebalance the group accepts no commits: repeat it.
                self.to_commit.insert(*partition);
            }
        }
    }

    /// The offsets to commit now; none while a commit is in flight.
    pub(super) fn commits(&mut self, now: Instant) -> Vec<(i32, i64)> {
        if !self.committing.is_empty() {
            if self.committing_since.is_some_and(|since| now < since + COMMIT_MAX) {
                return Vec::new();
            }
            // The library sometimes loses a commit when a server hangs: then waiting for its end would never
            // end.
            self.to_commit.append(&mut self.committing);
        }
        self.committing_since = Some(now);
        let partitions = mem::take(&mut self.to_commit).into_iter();
        let commits = partitions.filter_map(|partition| Some((partition, self.ledger.to_commit(partition)?)));
        let commits: Vec<(i32, i64)> = commits.collect();
        self.committing = commits.iter().map(|(partition, _)| *partition).collect();
        commits
    }

    /// The partitions to release now.
    pub(super) fn gone(&mut self) -> Vec<TopicPartitionList> {
        let now = Instant::now();
        let is_idle = |partition: i32| self.ledger.in_hands_of(partition) == 0;
        let is_told =
            |partition: i32| !self.to_commit.contains(&partition) && !self.committing.contains(&partition);
        let may_go = |leaving: &Leaving| {
            // A silent consumer loses its messages in flight; offsets of messages it has done before are
            // still committed.
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

/// The partition numbers of a list.
pub(super) fn numbers(list: &TopicPartitionList) -> impl Iterator<Item = i32> {
    list.elements().into_iter().map(|element| element.partition()).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, kafka::ledger::Place};

    /// A state with partition 1, about to be released, and these messages in flight.
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
        // The holder sends nothing more, because it has nothing in flight.
        let (mut state, places) = leaving(&[7], Duration::ZERO);
        assert!(state.ledger.done(places[0]));
        state.commit_soon([1].into_iter());
        assert!(state.gone().is_empty());
        assert_eq!(state.commits(Instant::now()), [(1, 8)]);
        assert!(state.gone().is_empty());
        state.end_commit(&[(1, 8)], false);
        assert!(state.gone().is_empty(), "the commit must be repeated");
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
