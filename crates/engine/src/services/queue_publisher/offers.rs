//! The attempts that a queue publisher offers, and whether the broker has received them.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use windlass_brokers::{InFlight, Look};
use windlass_core::Millis;

use windlass_store::AttemptId;

/// A message sent less long ago than this may not be counted by the broker yet, and the report of a worker that it
/// started the attempt may not have arrived yet.
const SETTLED_AFTER: Millis = Millis::from_secs(5);

/// If the broker does not count messages in flight, a message is sent again this long after it was first sent, then
/// after twice as long, and so on.
const AGAIN_AFTER: Millis = Millis::from_secs(30);

/// Messages are sent again after this time even if the queue is full enough: other servers send to it as well, so its
/// length proves nothing about these. The time is long, because a message that waits behind many others is then sent
/// twice.
const ANYWAY_AFTER: Millis = Millis::from_secs(300);

/// The number of consecutive inspections that must show too few messages.
const LOOKS: u32 = 2;

/// The number of messages of an attempt that somebody may take without an answer. Then the attempt is lost.
const UNANSWERED_MAX: u32 = 3;

/// How often the pause before a missing message is sent again doubles.
const DOUBLINGS_MAX: u32 = 3;

/// Messages that are missing so long after each other were lost for different reasons.
const APART: Millis = Millis::from_secs(600);

/// The attempts that a queue publisher has claimed.
#[derive(Debug, Default)]
pub(super) struct Offers {
    offers: BTreeMap<AttemptId, Offer>,
    /// Those that must be sent.
    unsent: BTreeSet<AttemptId>,
    /// The identity of the queue's contents at the last inspection.
    identity: Option<String>,
    /// The number of consecutive inspections with too few messages.
    missed: u32,
}

#[derive(Debug, Default)]
struct Offer {
    /// The version of its task, if known.
    version: Option<u64>,
    sent_at: Option<Millis>,
    /// How often it was sent.
    sent: u32,
    /// How often its message seemed to be missing.
    missed: u32,
    /// How often its message was certainly gone, and no answer had come.
    unanswered: u32,
    /// It is sent without its parameters, because the broker refused it as too large.
    is_short: bool,
    /// Another queue publisher has sent it, unless that one was killed before: then it is among those claimed last.
    is_left_behind: bool,
}

impl Offers {
    pub(super) fn len(&self) -> usize {
        self.offers.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }

    /// Adds a claimed attempt.
    pub(super) fn add(&mut self, id: AttemptId, version: u64) {
        self.offers.insert(id, Offer { version: Some(version), ..Offer::default() });
        self.unsent.insert(id);
    }

    /// Adds an attempt of another queue publisher that is gone.
    pub(super) fn go_on_with(&mut self, id: AttemptId, now: Millis) {
        let offer = Offer { sent_at: Some(now), sent: 1, is_left_behind: true, ..Offer::default() };
        self.offers.insert(id, offer);
        self.unsent.remove(&id);
    }

    pub(super) fn remove(&mut self, id: &AttemptId) {
        self.offers.remove(id);
        self.unsent.remove(id);
    }

    /// Sets the attempts to those claimed by the queue publisher according to the store.
    pub(super) fn compare(&mut self, held: impl Iterator<Item = AttemptId>) {
        let held: BTreeSet<AttemptId> = held.collect();
        self.offers.retain(|id, _| held.contains(id));
        self.unsent.retain(|id| held.contains(id));
        for id in held {
            if let Entry::Vacant(unknown) = self.offers.entry(id) {
                unknown.insert(Offer::default());
                self.unsent.insert(id);
            }
        }
    }

    /// All attempts with the versions of their tasks.
    pub(super) fn versions(&self) -> Vec<(AttemptId, Option<u64>)> {
        self.offers.iter().map(|(id, offer)| (*id, offer.version)).collect()
    }

    pub(super) fn note_version(&mut self, id: AttemptId, version: Option<u64>) {
        if let Some(offer) = self.offers.get_mut(&id) {
            offer.version = version;
        }
    }

    /// Attempts to send, at most `limit`.
    pub(super) fn unsent(&self, limit: usize) -> Vec<AttemptId> {
        self.unsent.iter().take(limit).copied().collect()
    }

    /// Records that the broker has confirmed it.
    pub(super) fn was_sent(&mut self, id: AttemptId, now: Millis) {
        if let Some(offer) = self.offers.get_mut(&id) {
            (offer.sent_at, offer.sent) = (Some(now), offer.sent + 1);
            offer.is_left_behind = false;
            self.unsent.remove(&id);
        }
    }

    /// Records that the broker refused it as too large: from now on it is sent without parameters. Returns whether that
    /// is new.
    pub(super) fn shorten(&mut self, id: AttemptId) -> bool {
        self.offers.get_mut(&id).is_some_and(|offer| !std::mem::replace(&mut offer.is_short, true))
    }

    pub(super) fn is_shortened(&self, id: AttemptId) -> bool {
        self.offers.get(&id).is_some_and(|offer| offer.is_short)
    }

    /// Attempts that were never sent, at most `limit`.
    pub(super) fn never_sent(&self, limit: usize) -> Vec<AttemptId> {
        self.offers.iter().filter(|(_, offer)| offer.sent == 0).map(|(id, _)| *id).take(limit).collect()
    }

    /// Whether the state of the queue suggests that messages must be sent again. If so, call [`Offers::find_missing`]
    /// once all answers from the time of the inspection are read: until then an acknowledged message cannot be
    /// distinguished from one that the broker lost.
    pub(super) fn is_doubtful(&mut self, seen: &Seen, at: Millis) -> bool {
        let is_doubtful = self.is_another(seen)
            || self.are_fewer(seen, at)
            || self.offers.values().any(|offer| offer.is_due(ANYWAY_AFTER, at));
        if !is_doubtful {
            self.missed = 0;
            self.note_identity(seen);
        }
        is_doubtful
    }

    /// Finds attempts to send again, from the state of the queue at this time. If there are fewer messages than were
    /// sent and not taken, some were lost, but it is unknown which.
    pub(super) fn find_missing(&mut self, seen: &Seen, at: Millis) -> Missing {
        let (again, unanswered): (Vec<AttemptId>, _) = if self.is_another(seen) {
            self.missed = 0;
            let was_sent = |offer: &Offer| offer.sent_at.is_some_and(|sent_at| sent_at.0 <= at.0);
            (self.ids(was_sent), Vec::new())
        } else {
            self.missed = if self.are_fewer(seen, at) { self.missed + 1 } else { 0 };
            let is_missing = self.missed >= LOOKS;
            if is_missing {
                self.missed = 0;
            }
            let counts_all = seen.counts_all();
            let unsent = if is_missing && counts_all { self.never_sent_before(seen, at) } else { Vec::new() };
            if !unsent.is_empty() {
                self.unsent.extend(&unsent);
                return Missing { again: unsent.len(), unanswered: Vec::new() };
            }
            let lost = self.ids(|offer| {
                is_missing
                    && if counts_all { offer.is_settled_again(at) } else { offer.is_due(AGAIN_AFTER, at) }
            });
            let unanswered = self.note_missed(&lost, seen.is_empty_for_consumers(), at);
            let mut again = self.ids(|offer| offer.is_due(ANYWAY_AFTER, at));
            again.extend(lost.into_iter().filter(|id| !unanswered.contains(id)));
            (again, unanswered)
        };
        self.note_identity(seen);
        let again: BTreeSet<AttemptId> = again.into_iter().collect();
        self.unsent.extend(&again);
        Missing { again: again.len(), unanswered }
    }

    /// Records that messages of these attempts seem to be missing, or are certainly gone. Returns the attempts of which too
    /// many are gone.
    fn note_missed(&mut self, lost: &[AttemptId], is_certain: bool, at: Millis) -> Vec<AttemptId> {
        let mut unanswered = Vec::new();
        for id in lost {
            let Some(offer) = self.offers.get_mut(id) else { continue };
            offer.missed += 1;
            if is_certain {
                offer.unanswered = if offer.is_older(APART, at) { 1 } else { offer.unanswered + 1 };
                if offer.unanswered >= UNANSWERED_MAX {
                    unanswered.push(*id);
                }
            }
        }
        unanswered
    }

    /// Whether everything that was in the queue is gone.
    fn is_another(&self, seen: &Seen) -> bool {
        match seen {
            Seen::Gone => true,
            Seen::Queue(look) => {
                self.identity.is_some() && look.identity.is_some() && self.identity != look.identity
            }
        }
    }

    /// Attempts that a killed queue publisher had claimed and not sent: of those it left behind the ones claimed last,
    /// as many as are missing. None if more are missing than it left.
    fn never_sent_before(&self, seen: &Seen, at: Millis) -> Vec<AttemptId> {
        let sent = self.offers.values().filter(|offer| offer.is_settled(at)).count();
        let missing = sent.saturating_sub(seen.messages().map_or(0, |messages| messages as usize));
        let mut left_behind = self.ids(|offer| offer.is_left_behind);
        if missing > left_behind.len() {
            return Vec::new();
        }
        left_behind.sort_unstable_by_key(|id| std::cmp::Reverse(id.claim));
        left_behind.truncate(missing);
        left_behind
    }

    fn are_fewer(&self, seen: &Seen, at: Millis) -> bool {
        let sent = self.offers.values().filter(|offer| offer.is_settled(at)).count();
        sent > 0 && seen.messages().is_none_or(|messages| messages < sent as u64)
    }

    fn note_identity(&mut self, seen: &Seen) {
        if let Seen::Queue(look) = seen {
            self.identity.clone_from(&look.identity);
        }
    }

    fn ids(&self, is_wanted: impl Fn(&Offer) -> bool) -> Vec<AttemptId> {
        self.offers.iter().filter(|(_, offer)| is_wanted(offer)).map(|(id, _)| *id).collect()
    }
}

impl Offer {
    /// Whether it was sent this long before that time.
    fn is_older(&self, than: Millis, at: Millis) -> bool {
        self.sent_at.is_some_and(|sent_at| at.0 >= sent_at.0.saturating_add(than.0))
    }

    /// Whether it was sent long enough before that time to be counted for certain.
    fn is_settled(&self, at: Millis) -> bool {
        self.is_older(SETTLED_AFTER, at)
    }

    /// The same, after a time that doubles each time its message seemed to be missing.
    fn is_settled_again(&self, at: Millis) -> bool {
        self.is_older(SETTLED_AFTER.doubled(self.missed.min(DOUBLINGS_MAX)), at)
    }

    /// Whether it must be sent again: `first` after the first time it was sent, then after doubling times.
    fn is_due(&self, first: Millis, at: Millis) -> bool {
        self.is_older(first.doubled(self.sent.saturating_sub(1)), at)
    }
}

/// What the state of a queue says about the attempts that were sent to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// How many are sent again.
    pub(super) again: usize,
    /// Attempts that are not sent again: their messages were taken too often without an answer.
    pub(super) unanswered: Vec<AttemptId>,
}

/// The observed state of the queue publisher's queue.
#[derive(Debug)]
pub(super) enum Seen {
    /// The queue.
    Queue(Look),
    /// The queue does not exist any more.
    Gone,
}

impl Seen {
    fn messages(&self) -> Option<u64> {
        match self {
            Self::Gone => Some(0),
            Self::Queue(look) => look.messages,
        }
    }

    /// Whether the broker counts every message, including those in flight.
    fn counts_all(&self) -> bool {
        match self {
            Self::Gone => true,
            Self::Queue(look) => look.messages.is_some() && look.in_flight != InFlight::NotCounted,
        }
    }

    /// Whether no message waits and none is in flight, although there may be consumers: each message that was sent is gone.
    /// While there is one, nobody can know whose it is.
    fn is_empty_for_consumers(&self) -> bool {
        matches!(self, Self::Queue(look) if look.messages == Some(0) && look.in_flight == InFlight::Counted)
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{ActKey, TaskId};

    use super::*;

    fn id(number: u128) -> AttemptId {
        AttemptId { task: TaskId(number), key: ActKey::forward(0), attempt: 1, claim: 1 }
    }

    fn sent(count: u128, at: u64) -> Offers {
        let mut offers = Offers::default();
        for number in 0..count {
            offers.add(id(number), 1);
            offers.was_sent(id(number), Millis(at));
        }
        offers
    }

    fn look(messages: Option<u64>, in_flight: InFlight) -> Seen {
        Seen::Queue(Look { messages, in_flight, identity: None })
    }

    impl Offers {
        /// Inspects the queue while no answer waits to be read.
        fn looked(&mut self, seen: &Seen, at: Millis) -> Option<usize> {
            let missing =
                if self.is_doubtful(seen, at) { self.find_missing(seen, at) } else { Missing::default() };
            assert_eq!(missing.unanswered, []);
            Some(missing.again).filter(|count| *count > 0)
        }
    }

    #[test]
    fn what_was_lost_is_sent_again_when_it_was_missing_twice() {
        let mut offers = sent(3, 0);
        assert_eq!(offers.looked(&look(Some(0), InFlight::Counted), Millis(4_999)), None, "just sent");
        assert_eq!(offers.looked(&look(Some(2), InFlight::Counted), Millis(6_000)), None);
        assert_eq!(
            offers.looked(&look(Some(3), InFlight::Counted), Millis(7_000)),
            None,
            "it was on its way"
        );
        assert_eq!(offers.looked(&look(Some(2), InFlight::Counted), Millis(8_000)), None);
        assert_eq!(offers.looked(&look(Some(2), InFlight::Counted), Millis(9_000)), Some(3));
        assert_eq!(offers.unsent(9).len(), 3);
        for number in 0..3 {
            offers.was_sent(id(number), Millis(9_500));
        }
        assert!(offers.unsent(9).is_empty());
        assert_eq!(offers.looked(&look(Some(0), InFlight::Counted), Millis(9_600)), None);
    }

    #[test]
    fn what_may_be_in_hands_is_sent_again_after_doubling_times() {
        let mut offers = sent(1, 0);
        let mut times = Vec::new();
        for second in 1..400 {
            let now = Millis(second * 1000);
            if offers.looked(&look(Some(0), InFlight::NotCounted), now).is_some() {
                times.push(second);
                offers.was_sent(id(0), now);
            }
        }
        // It must be missing twice in a row, so the second inspection after the time finds it.
        assert_eq!(times.len(), 3, "{times:?}");
        assert!((30..33).contains(&times[0]) && (90..95).contains(&times[1]), "{times:?}");
    }

    #[test]
    fn what_nobody_takes_for_long_is_sent_again_whatever_else_is_in_the_queue() {
        let mut offers = sent(1, 0);
        let looked = |offers: &mut Offers, second: u64| {
            offers.looked(&look(Some(9), InFlight::Counted), Millis(second * 1000))
        };
        assert!((1..300).all(|second| looked(&mut offers, second).is_none()));
        assert_eq!(looked(&mut offers, 300), Some(1));
        offers.was_sent(id(0), Millis(300_000));
        assert!((301..900).all(|second| looked(&mut offers, second).is_none()));
        assert_eq!(looked(&mut offers, 900), Some(1));
    }

    #[test]
    fn a_queue_that_was_made_anew_gets_everything_at_once() {
        let mut offers = sent(2, 0);
        let at = |identity: &str| {
            let identity = Some(identity.into());
            Seen::Queue(Look { messages: Some(2), in_flight: InFlight::Counted, identity })
        };
        assert_eq!(offers.looked(&at("one"), Millis(1)), None);
        assert_eq!(offers.looked(&at("one"), Millis(2)), None);
        assert_eq!(offers.looked(&at("two"), Millis(3)), Some(2));
    }

    #[test]
    fn what_is_sent_after_a_queue_has_gone_is_not_sent_again_for_that() {
        let mut offers = sent(2, 0);
        offers.add(id(7), 1);
        offers.was_sent(id(7), Millis(60));
        assert!(offers.is_doubtful(&Seen::Gone, Millis(50)));
        assert_eq!(offers.find_missing(&Seen::Gone, Millis(50)).again, 2);
        assert_eq!(offers.unsent(9), vec![id(0), id(1)]);
    }

    #[test]
    fn of_what_another_publisher_left_behind_only_the_latest_are_sent_as_many_as_are_missing() {
        let mut offers = Offers::default();
        let left = |claim: u64| AttemptId { claim, ..id(u128::from(9 - claim)) };
        (1..=5).for_each(|claim| offers.go_on_with(left(claim), Millis(0)));
        let seen = look(Some(3), InFlight::Counted);
        assert_eq!(offers.looked(&seen, Millis(6_000)), None);
        assert_eq!(offers.looked(&seen, Millis(7_000)), Some(2));
        assert_eq!(offers.unsent(9).into_iter().collect::<BTreeSet<_>>(), [left(4), left(5)].into());
        [4, 5].into_iter().for_each(|claim| offers.was_sent(left(claim), Millis(7_500)));
        // The queue has lost everything: more than was left behind.
        let seen = look(Some(0), InFlight::Counted);
        assert_eq!(offers.looked(&seen, Millis(13_000)), None);
        assert_eq!(offers.looked(&seen, Millis(14_000)), Some(5));
    }

    #[test]
    fn what_workers_took_meanwhile_was_not_missing() {
        let mut offers = sent(3, 0);
        let seen = look(Some(1), InFlight::Counted);
        assert_eq!(offers.looked(&seen, Millis(6_000)), None, "once is not enough");
        assert!(offers.is_doubtful(&seen, Millis(7_000)));
        // The answers of that time are read before anything is concluded: two of them were taken.
        offers.compare([id(2)].into_iter());
        assert_eq!(offers.find_missing(&seen, Millis(7_000)), Missing::default());
        assert_eq!(offers.looked(&seen, Millis(8_000)), None);
    }

    /// Sends what is missing, during this number of seconds. Returns the seconds in which there was something to send, and the
    /// second in which attempts were lost, with these.
    fn watched(offers: &mut Offers, seen: &Seen, seconds: u64) -> (Vec<u64>, Option<(u64, Vec<AttemptId>)>) {
        let mut again = Vec::new();
        for second in 1..seconds {
            let now = Millis(second * 1000);
            if !offers.is_doubtful(seen, now) {
                continue;
            }
            let missing = offers.find_missing(seen, now);
            if missing.again > 0 {
                again.push(second);
            }
            for id in offers.unsent(9) {
                offers.was_sent(id, now);
            }
            if !missing.unanswered.is_empty() {
                return (again, Some((second, missing.unanswered)));
            }
        }
        (again, None)
    }

    #[test]
    fn an_attempt_whose_messages_are_taken_without_an_answer_is_lost() {
        let (again, lost) = watched(&mut sent(2, 0), &look(Some(0), InFlight::Counted), 60);
        assert_eq!(again, [6, 16], "after 5 and 10 seconds");
        assert_eq!(lost, Some((36, vec![id(0), id(1)])), "after 20 seconds more");
    }

    #[test]
    fn an_attempt_is_not_lost_while_a_message_may_be_its_own() {
        let (again, lost) = watched(&mut sent(2, 0), &look(Some(1), InFlight::Counted), 200);
        assert_eq!(lost, None, "one of the two may be waiting or in flight");
        assert_eq!(again[..4], [6, 16, 36, 76]);
        assert!(again.len() < 8, "{again:?}");
    }

    #[test]
    fn messages_that_are_lost_from_time_to_time_cost_no_attempt() {
        let mut offers = sent(1, 0);
        for hour in 1..9 {
            let now = Millis(hour * 3_600_000);
            let (before, gone) = (Millis(now.0 - 1_000), look(Some(0), InFlight::Counted));
            assert!(offers.looked(&gone, before).is_none_or(|again| again == 1));
            assert!(offers.looked(&gone, now).is_none_or(|again| again == 1));
            offers.was_sent(id(0), now);
        }
    }

    #[test]
    fn what_nobody_can_have_taken_is_sent_again_and_again() {
        let mut offers = sent(1, 0);
        let mut times = 0;
        for second in 1..400 {
            let now = Millis(second * 1000);
            if offers.looked(&look(Some(0), InFlight::None), now).is_some() {
                times += 1;
                offers.was_sent(id(0), now);
            }
        }
        assert!((10..80).contains(&times), "{times}");
    }

    #[test]
    fn what_the_store_says_stands() {
        let mut offers = sent(3, 0);
        offers.compare([id(1), id(7)].into_iter());
        assert_eq!((offers.len(), offers.unsent(9)), (2, vec![id(7)]));
    }
}
