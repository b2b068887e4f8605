//! Which attempts of a queue are claimed where concurrency keys take turns or limits hold some back.
//!
//! The database returns what is running, what began lately, and the first attempts of each key. The choice is made here, in
//! turns as all stores take them: [`Turn`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
};

use windlass_core::{Millis, Name, Timestamp};
use windlass_store::{KeysInLine, Limit, Turn};

use crate::rows::{fairness_bytes, fairness_key};

/// A ready attempt that nobody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) task: u128,
    pub(crate) act: i64,
    pub(crate) attempt: i64,
    pub(crate) rank: i64,
    pub(crate) command: Name,
    /// What it takes turns by, as [`fairness_bytes`] writes it.
    pub(crate) fairness: Vec<u8>,
    /// Its timeout in milliseconds.
    pub(crate) timeout: i64,
}

/// Where the round of a queue is. Keys are as [`fairness_bytes`] writes them.
pub(crate) type KeyTurn = Turn<Vec<u8>>;

/// Reads what [`write_turn`] wrote.
pub(crate) fn read_turn(bytes: Option<&[u8]>) -> Option<KeyTurn> {
    let (began, key) = bytes?.split_first_chunk()?;
    Some(Turn { key: key.to_vec(), began: Timestamp(i64::from_be_bytes(*began)) })
}

pub(crate) fn write_turn(turn: &KeyTurn) -> Vec<u8> {
    [&turn.began.0.to_be_bytes(), &turn.key[..]].concat()
}

/// The first keys of a queue that have something ready.
#[derive(Debug, Default)]
pub(crate) struct KeysInTurn {
    /// Those that have their turn in the round as it is.
    pub(crate) rest: BTreeSet<Vec<u8>>,
    /// Those of the next round, which is of all.
    pub(crate) next: BTreeSet<Vec<u8>>,
}

/// What counts under the limits of a queue.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    limits: Vec<Limit>,
    /// By limit and key: how many are running.
    running: HashMap<(Name, Vec<u8>), u64>,
    /// By limit and key: how many began within the last span.
    begun: HashMap<(Name, Vec<u8>), u64>,
}

/// What is handed out.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// The attempts, in their order.
    pub(crate) attempts: Vec<Candidate>,
    /// How far the round is then.
    pub(crate) turn: Option<KeyTurn>,
    /// A limit held some of the candidates back: behind them there may be others that it does not hold back.
    pub(crate) held_back: bool,
}

/// Attempts that are not to be looked at: of this command, of this key; nothing = of all.
pub(crate) type Blocked = (Option<Name>, Option<Vec<u8>>);

impl Hands {
    /// Nothing counts yet under the limits of a queue.
    pub(crate) fn new(limits: Vec<Limit>) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Counts an attempt that a session has claimed.
    pub(crate) fn hold(&mut self, command: &Name, fairness: &[u8]) {
        for key in counted(&self.limits, command, fairness) {
            *self.running.entry(key).or_default() += 1;
        }
    }

    /// Counts an attempt that began at some time, as it was written under a limit.
    pub(crate) fn begin(&mut self, limit: Name, key: Vec<u8>, at: Millis, now: Millis) {
        let of = self.limits.iter().find(|of| of.name == limit).and_then(|of| of.starts);
        if of.is_some_and(|starts| at.0.saturating_add(starts.per.0) > now.0) {
            *self.begun.entry((limit, key)).or_default() += 1;
        }
    }

    /// The limits by starts under which an attempt counts, with its key there.
    pub(crate) fn starts(&self, candidate: &Candidate) -> Vec<(Name, Vec<u8>)> {
        let by_starts = self.limits.iter().filter(|limit| limit.starts.is_some());
        counted(by_starts, &candidate.command, &candidate.fairness)
    }

    /// What limits hold back as it is.
    pub(crate) fn blocked(&self) -> Vec<Blocked> {
        let keys = self.running.keys().chain(self.begun.keys());
        let mut blocked: Vec<Blocked> = keys
            .filter(|(name, key)| self.is_full(name, key))
            .filter_map(|(name, key)| {
                let limit = self.limits.iter().find(|limit| limit.name == *name)?;
                Some((limit.command.clone(), limit.per_key.then(|| key.clone())))
            })
            .collect();
        blocked.sort_unstable();
        blocked.dedup();
        blocked
    }

    fn is_full(&self, limit: &Name, key: &[u8]) -> bool {
        let Some(limit) = self.limits.iter().find(|of| of.name == *limit) else { return false };
        let at = (limit.name.clone(), key.to_vec());
        let count = |counts: &HashMap<_, u64>| counts.get(&at).copied().unwrap_or(0);
        limit.running.is_some_and(|most| count(&self.running) >= u64::from(most))
            || limit.starts.is_some_and(|starts| count(&self.begun) >= u64::from(starts.count))
    }

    fn is_held_back(&self, candidate: &Candidate) -> bool {
        let keys = counted(&self.limits, &candidate.command, &candidate.fairness);
        keys.iter().any(|(limit, key)| self.is_full(limit, key))
    }

    fn take(&mut self, candidate: &Candidate) {
        self.hold(&candidate.command, &candidate.fairness);
        for key in self.starts(candidate) {
            *self.begun.entry(key).or_default() += 1;
        }
    }
}

/// The limits under which an attempt counts, with its key there.
fn counted<'l>(
    limits: impl IntoIterator<Item = &'l Limit>,
    command: &Name,
    fairness: &[u8],
) -> Vec<(Name, Vec<u8>)> {
    let key = fairness_key(fairness);
    let count =
        |limit: &Limit| Some((limit.name.clone(), fairness_bytes(limit.counts(command, key.as_deref())?)));
    limits.into_iter().filter_map(count).collect()
}

/// The candidates, while some are chosen.
struct Lines<'h> {
    by_key: BTreeMap<Vec<u8>, VecDeque<Candidate>>,
    keys: KeysInTurn,
    hands: &'h mut Hands,
    /// The round is one that began now: it is of all keys.
    is_new: bool,
    /// A limit held some of the candidates back.
    held_back: bool,
}

impl Lines<'_> {
    /// Whether a key has an attempt that no limit holds back. It is the first of its line then.
    fn has_next(&mut self, key: &Vec<u8>) -> bool {
        let Some(line) = self.by_key.get_mut(key) else { return false };
        while line.pop_front_if(|next| self.hands.is_held_back(next)).is_some() {
            self.held_back = true;
        }
        !line.is_empty()
    }

    fn take(&mut self, key: &Vec<u8>) -> Option<Candidate> {
        let next = self.by_key.get_mut(key)?.pop_front()?;
        self.hands.take(&next);
        Some(next)
    }
}

impl KeysInLine<Vec<u8>> for Lines<'_> {
    fn behind(&mut self, turn: &KeyTurn) -> Option<Vec<u8>> {
        let keys = if self.is_new { &self.keys.next } else { &self.keys.rest };
        let behind: Vec<Vec<u8>> =
            keys.range((Bound::Excluded(turn.key.clone()), Bound::Unbounded)).cloned().collect();
        behind.into_iter().find(|key| self.has_next(key))
    }

    fn first(&mut self) -> Option<Vec<u8>> {
        self.is_new = true;
        let all: Vec<Vec<u8>> = self.keys.next.iter().cloned().collect();
        all.into_iter().find(|key| self.has_next(key))
    }
}

/// Chooses at most `most` of the candidates, and counts them as running. The candidates must include the first ones of each key.
pub(crate) fn choose(
    mut candidates: Vec<Candidate>,
    keys: KeysInTurn,
    hands: &mut Hands,
    turn: Option<KeyTurn>,
    now: Timestamp,
    most: usize,
) -> Chosen {
    candidates.sort_unstable_by_key(|candidate| (candidate.rank, candidate.task, candidate.act));
    let mut by_key: BTreeMap<Vec<u8>, VecDeque<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        by_key.entry(candidate.fairness.clone()).or_default().push_back(candidate);
    }
    let mut lines = Lines { by_key, keys, hands, is_new: false, held_back: false };
    let mut chosen = Chosen { turn, ..Chosen::default() };
    while chosen.attempts.len() < most
        && let Some(turn) = Turn::next(chosen.turn.as_ref(), now, &mut lines)
    {
        chosen.attempts.extend(lines.take(&turn.key));
        chosen.turn = Some(turn);
    }
    chosen.held_back = lines.held_back;
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(task: u128, command: &str, key: &str) -> Candidate {
        let fairness = fairness_bytes((!key.is_empty()).then_some(key));
        let command = Name::new(command).unwrap();
        Candidate { task, act: 0, attempt: 1, rank: 0, command, fairness, timeout: 0 }
    }

    fn tasks(chosen: &Chosen) -> Vec<u128> {
        chosen.attempts.iter().map(|candidate| candidate.task).collect()
    }

    fn limit(per_key: bool, running: u32) -> Limit {
        let (name, queue) = (Name::new("limit").unwrap(), Name::new("work").unwrap());
        Limit { name, queue, command: None, per_key, running: Some(running), starts: None }
    }

    /// Those of the rest of a round, and all.
    fn keys(rest: &[&str], candidates: &[Candidate]) -> KeysInTurn {
        let rest = rest.iter().map(|key| fairness_bytes(Some(key))).collect();
        KeysInTurn { rest, next: candidates.iter().map(|candidate| candidate.fairness.clone()).collect() }
    }

    fn candidates(keys: &[&str]) -> Vec<Candidate> {
        (1..).zip(keys).map(|(task, key)| candidate(task, "do", key)).collect()
    }

    #[test]
    fn a_round_goes_on_behind_its_cursor_and_the_next_one_is_of_all() {
        let some = candidates(&["a", "a", "b", "", "", "c"]);
        let chosen = choose(some.clone(), keys(&[], &some), &mut Hands::default(), None, Timestamp(70), 9);
        assert_eq!(tasks(&chosen), [4, 1, 3, 6, 5, 2]);
        let turn = Turn { key: fairness_bytes(Some("a")), began: Timestamp(50) };
        let rest = || keys(&["c"], &some);
        let chosen =
            choose(some.clone(), rest(), &mut Hands::default(), Some(turn.clone()), Timestamp(70), 1);
        let round = chosen.turn.clone().map(|turn| turn.began);
        assert_eq!((tasks(&chosen), round), (vec![6], Some(Timestamp(50))), "b came after the round began");
        let chosen = choose(some.clone(), rest(), &mut Hands::default(), Some(turn), Timestamp(70), 4);
        assert_eq!(tasks(&chosen), [6, 4, 1, 3]);
        assert_eq!(chosen.turn, Some(Turn { key: fairness_bytes(Some("b")), began: Timestamp(70) }));
    }

    #[test]
    fn a_turn_is_read_as_it_was_written() {
        let turn = Turn { key: b"=a".to_vec(), began: Timestamp(50) };
        assert_eq!(read_turn(Some(&write_turn(&turn))), Some(turn.clone()));
        assert_eq!(read_turn(Some(b"=a")), None);
        assert_eq!(read_turn(None), None);
    }

    #[test]
    fn a_limit_by_key_lets_others_go_before() {
        let mut hands = Hands::new(vec![limit(true, 1)]);
        hands.hold(&Name::new("do").unwrap(), &fairness_bytes(Some("b")));
        assert_eq!(hands.blocked(), [(None, Some(fairness_bytes(Some("b"))))]);
        let some = candidates(&["a", "a", "b", "c", ""]);
        let chosen = choose(some.clone(), keys(&[], &some), &mut hands, None, Timestamp(70), 9);
        assert_eq!(tasks(&chosen), [5, 1, 4]);
        assert!(chosen.held_back);
    }

    #[test]
    fn a_limit_on_all_is_counted_over_all_keys() {
        let mut hands = Hands::new(vec![limit(false, 2)]);
        let some = candidates(&["", "", "", ""]);
        let chosen = choose(some.clone(), keys(&[], &some), &mut hands, None, Timestamp(70), 9);
        assert_eq!(tasks(&chosen), [1, 2]);
        assert_eq!(hands.blocked(), [(None, None)]);
    }
}
