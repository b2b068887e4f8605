//! Which attempts of a queue are handed out where keys take turns or limits hold some back.
//!
//! The database tells what is in hands, what began lately, and the first attempts of each key; here it is decided.
//! Keys take turns in their order, beginning behind the one that had its turn last; attempts without a key are one of
//! them. Of a key the smallest rank goes first.

use std::collections::{BTreeMap, HashMap, VecDeque};

use windlass_core::{Millis, Name};
use windlass_engine::ports::Limit;

use super::{fairness_bytes, fairness_key};

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
}

/// What counts under the limits of a queue.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    limits: Vec<Limit>,
    /// By limit and key: how many are in hands.
    running: HashMap<(Name, Vec<u8>), u64>,
    /// By limit and key: how many began within the last span.
    begun: HashMap<(Name, Vec<u8>), u64>,
}

/// What is handed out.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// The attempts, in their order.
    pub(crate) attempts: Vec<Candidate>,
    /// The key that has had its turn last.
    pub(crate) turn: Option<Vec<u8>>,
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

    /// Counts an attempt that a session has.
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

/// Chooses at most `most` of the candidates, and counts them as in hands. Of each key there must be its first ones.
pub(crate) fn choose(
    candidates: Vec<Candidate>,
    hands: &mut Hands,
    turn: Option<Vec<u8>>,
    most: usize,
) -> Chosen {
    let mut lines: BTreeMap<Vec<u8>, Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        lines.entry(candidate.fairness.clone()).or_default().push(candidate);
    }
    for line in lines.values_mut() {
        line.sort_unstable_by_key(|candidate| (candidate.rank, candidate.task, candidate.act));
    }
    let mut chosen = Chosen { turn, ..Chosen::default() };
    let (behind, before): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|(key, _)| chosen.turn.as_ref().is_some_and(|turn| key > turn));
    let mut turns: VecDeque<(Vec<u8>, VecDeque<Candidate>)> =
        behind.into_iter().chain(before).map(|(key, line)| (key, line.into())).collect();
    while chosen.attempts.len() < most
        && let Some((key, mut line)) = turns.pop_front()
    {
        while let Some(next) = line.pop_front() {
            if hands.is_held_back(&next) {
                chosen.held_back = true;
                continue;
            }
            hands.take(&next);
            chosen.attempts.push(next);
            chosen.turn = Some(key.clone());
            turns.push_back((key, line));
            break;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(task: u128, command: &str, key: &str) -> Candidate {
        let fairness = fairness_bytes((!key.is_empty()).then_some(key));
        let command = Name::new(command).unwrap();
        Candidate { task, act: 0, attempt: 1, rank: 0, command, fairness }
    }

    fn tasks(chosen: &Chosen) -> Vec<u128> {
        chosen.attempts.iter().map(|candidate| candidate.task).collect()
    }

    fn limit(per_key: bool, running: u32) -> Limit {
        let (name, queue) = (Name::new("limit").unwrap(), Name::new("work").unwrap());
        Limit { name, queue, command: None, per_key, running: Some(running), starts: None }
    }

    #[test]
    fn keys_take_turns_from_the_one_that_had_its_turn_last() {
        let keys = ["a", "a", "b", "", "", "c"];
        let candidates: Vec<_> = (1..).zip(keys).map(|(task, key)| candidate(task, "do", key)).collect();
        let chosen = choose(candidates.clone(), &mut Hands::default(), None, 9);
        assert_eq!(tasks(&chosen), [4, 1, 3, 6, 5, 2]);
        let chosen = choose(candidates, &mut Hands::default(), Some(fairness_bytes(Some("a"))), 3);
        assert_eq!(tasks(&chosen), [3, 6, 4]);
        assert_eq!(chosen.turn, Some(Vec::new()));
    }

    #[test]
    fn a_limit_by_key_lets_others_go_before() {
        let mut hands = Hands::new(vec![limit(true, 1)]);
        hands.hold(&Name::new("do").unwrap(), &fairness_bytes(Some("b")));
        assert_eq!(hands.blocked(), [(None, Some(fairness_bytes(Some("b"))))]);
        let keys = ["a", "a", "b", "c", ""];
        let candidates: Vec<_> = (1..).zip(keys).map(|(task, key)| candidate(task, "do", key)).collect();
        let chosen = choose(candidates, &mut hands, None, 9);
        assert_eq!(tasks(&chosen), [5, 1, 4]);
        assert!(chosen.held_back);
    }

    #[test]
    fn a_limit_on_all_is_counted_over_all_keys() {
        let mut hands = Hands::new(vec![limit(false, 2)]);
        let candidates: Vec<_> = (1..=4).map(|task| candidate(task, "do", "")).collect();
        assert_eq!(tasks(&choose(candidates, &mut hands, None, 9)), [1, 2]);
        assert_eq!(hands.blocked(), [(None, None)]);
    }
}
