//! Attempts with keys, for the turns of keys.
//!
//! [`Turn`] says whose turn it is; here its questions cost the logarithm of how many keys there are, whatever is limited.
//!
//! ```text
//! lanes of a command    standing: may have their turn      aside: a limit keeps them back
//! a: ● ● ● ● ●                 a b                                c
//! b: ●
//! c: ● ●
//! ```
//!
//! The search for the next turn puts keys aside that are at a limit, until something counts less under it. Keys that
//! came after the round began are looked at once in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use windlass_core::{Name, Timestamp};

use super::{limits::Key, standing::Place};
use crate::rules::Turn;

/// Where the round of a queue is. Attempts without a key have no key.
pub(super) type KeyTurn = Turn<Option<Key>>;

/// The ready attempts of a queue that have keys.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    commands: BTreeMap<Name, Lanes>,
}

/// The attempts of a command, by key.
#[derive(Debug, Default)]
struct Lanes {
    by_key: BTreeMap<Key, BTreeSet<Place>>,
    /// The keys that may have their turn.
    standing: BTreeSet<Key>,
}

impl Keyed {
    /// An attempt waits. Returns whether it did not before.
    pub(super) fn insert(&mut self, command: &Name, key: &str, place: Place) -> bool {
        let lanes = self.commands.entry(command.clone()).or_default();
        if let Some(lane) = lanes.by_key.get_mut(key) {
            return lane.insert(place);
        }
        let key = Key::from(key);
        lanes.standing.insert(key.clone());
        lanes.by_key.insert(key, [place].into());
        true
    }

    /// An attempt waits no more. Returns whether it did.
    pub(super) fn remove(&mut self, command: &Name, key: &str, place: &Place) -> bool {
        let Some(lanes) = self.commands.get_mut(command) else { return false };
        let Some(lane) = lanes.by_key.get_mut(key) else { return false };
        let waited = lane.remove(place);
        if lane.is_empty() {
            lanes.by_key.remove(key);
            lanes.standing.remove(key);
        }
        if lanes.by_key.is_empty() {
            self.commands.remove(command);
        }
        waited
    }

    /// The first key of those commands that are `wanted`: of all, or behind `turn` and in its round. Keys that `keeps_back` is
    /// true for stand aside from now on.
    pub(super) fn next(
        &mut self,
        turn: Option<&KeyTurn>,
        wanted: impl Fn(&Name) -> bool,
        keeps_back: impl Fn(&Name, &str) -> bool,
    ) -> Option<Key> {
        let commands = self.commands.iter_mut().filter(|(command, _)| wanted(command));
        commands.filter_map(|(command, lanes)| lanes.next(turn, |key| keeps_back(command, key))).min()
    }

    /// The first attempt of a key, of those commands that are `wanted`.
    pub(super) fn first_of(&self, key: &str, wanted: impl Fn(&Name) -> bool) -> Option<(Place, Name)> {
        let commands = self.commands.iter().filter(|(command, _)| wanted(command));
        let firsts =
            commands.filter_map(|(command, lanes)| Some((*lanes.by_key.get(key)?.first()?, command.clone())));
        firsts.min()
    }

    /// Less counts under this key: it may have its turn again.
    pub(super) fn let_stand(&mut self, key: &Key) {
        for lanes in self.commands.values_mut().filter(|lanes| lanes.by_key.contains_key(key)) {
            lanes.standing.insert(key.clone());
        }
    }

    /// Limits have changed: all keys may have their turn until it is found that they may not.
    pub(super) fn let_all_stand(&mut self) {
        for lanes in self.commands.values_mut() {
            lanes.standing.extend(lanes.by_key.keys().cloned());
        }
    }

    /// Whether a limit keeps a key back.
    pub(super) fn has_aside(&self) -> bool {
        self.commands.values().any(|lanes| lanes.standing.len() < lanes.by_key.len())
    }

    pub(super) fn contains(&self, command: &Name, key: &str, place: &Place) -> bool {
        let lane = self.commands.get(command).and_then(|lanes| lanes.by_key.get(key));
        lane.is_some_and(|lane| lane.contains(place))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// The first place of each lane.
    pub(super) fn firsts(&self) -> impl Iterator<Item = &Place> {
        let lanes = self.commands.values().flat_map(|lanes| lanes.by_key.values());
        lanes.filter_map(|lane| lane.first())
    }

    /// How many attempts of the same key stand before one.
    pub(super) fn before(&self, key: &str, place: &Place) -> u64 {
        let lanes = self.commands.values().filter_map(|lanes| lanes.by_key.get(key));
        lanes.map(|lane| lane.range(..place).count() as u64).sum()
    }

    /// How many attempts each key has.
    pub(super) fn counts(&self) -> BTreeMap<&Key, u64> {
        let mut counts = BTreeMap::new();
        for (key, lane) in self.commands.values().flat_map(|lanes| &lanes.by_key) {
            *counts.entry(key).or_default() += lane.len() as u64;
        }
        counts
    }
}

impl Lanes {
    fn next(&mut self, turn: Option<&KeyTurn>, keeps_back: impl Fn(&str) -> bool) -> Option<Key> {
        let behind = turn.and_then(|turn| turn.key.as_ref());
        let behind = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let began = turn.map_or(Timestamp(i64::MAX), |turn| turn.began);
        loop {
            let mut standing = self.standing.range::<Key, _>((behind, Bound::Unbounded));
            let key = standing.find(|key| self.was_ready(key, began))?.clone();
            if !keeps_back(&key) {
                return Some(key);
            }
            self.standing.remove(&key);
        }
    }

    /// Whether a key has an attempt that was ready by then. Mostly that is its first one.
    fn was_ready(&self, key: &Key, by: Timestamp) -> bool {
        self.by_key.get(key).is_some_and(|lane| lane.iter().any(|place| place.ready_at <= by))
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{ActKey, TaskId};

    use super::*;

    fn place(rank: i64) -> Place {
        Place { rank, task: TaskId(1), key: ActKey::forward(0), ready_at: Timestamp(0) }
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    /// Hands out the next in a round that goes on, or of all.
    fn take(
        keyed: &mut Keyed,
        turn: &mut Option<KeyTurn>,
        keeps_back: impl Fn(&Name, &str) -> bool,
    ) -> Option<(String, i64)> {
        let next = turn.as_ref().and_then(|turn| keyed.next(Some(turn), |_| true, &keeps_back));
        let key = next.or_else(|| keyed.next(None, |_| true, &keeps_back))?;
        let (place, command) =
            keyed.first_of(&key, |command| !keeps_back(command, &key)).expect("it has an attempt");
        assert!(keyed.remove(&command, &key, &place));
        *turn = Some(Turn { key: Some(key.clone()), began: Timestamp(0) });
        Some((key.to_string(), place.rank))
    }

    #[test]
    fn a_key_with_two_commands_has_one_turn() {
        let (mut keyed, mut turn) = (Keyed::default(), None);
        for rank in 0..2 {
            keyed.insert(&name("one"), "a", place(rank));
            keyed.insert(&name("two"), "a", place(rank + 10));
            keyed.insert(&name("two"), "b", place(rank + 20));
        }
        let order: String =
            std::iter::from_fn(|| take(&mut keyed, &mut turn, |_, _| false)).map(|(key, _)| key).collect();
        assert_eq!(order, "ababaa");
        assert!(keyed.is_empty());
    }

    #[test]
    fn a_key_whose_attempts_came_after_the_round_began_waits_for_the_next() {
        let mut keyed = Keyed::default();
        let at = |rank, at| Place { ready_at: Timestamp(at), ..place(rank) };
        keyed.insert(&name("do"), "b", at(1, 60));
        keyed.insert(&name("do"), "c", at(1, 60));
        keyed.insert(&name("do"), "c", at(2, 40));
        let turn = Turn { key: Some(Key::from("a")), began: Timestamp(50) };
        assert_eq!(keyed.next(Some(&turn), |_| true, |_, _| false).as_deref(), Some("c"));
        assert_eq!(keyed.next(None, |_| true, |_, _| false).as_deref(), Some("b"));
    }

    #[test]
    fn a_key_that_is_kept_back_stands_aside_until_it_may_go() {
        let (mut keyed, mut turn) = (Keyed::default(), None);
        for rank in 0..3 {
            keyed.insert(&name("do"), "a", place(rank));
            keyed.insert(&name("do"), "b", place(rank + 10));
        }
        let no_a = |_: &Name, key: &str| key == "a";
        assert_eq!(take(&mut keyed, &mut turn, no_a), Some(("b".to_owned(), 10)));
        assert!(keyed.has_aside());
        assert!(keyed.insert(&name("do"), "a", place(-1)), "one that comes to it stands aside as well");
        let next = take(&mut keyed, &mut turn, |_, _| false);
        assert_eq!(next, Some(("b".to_owned(), 11)), "nobody said that it may go");
        keyed.let_stand(&Key::from("a"));
        assert_eq!(take(&mut keyed, &mut turn, |_, _| false), Some(("a".to_owned(), -1)));
        assert_eq!(take(&mut keyed, &mut turn, |_, _| true), None);
        keyed.let_all_stand();
        let rest: Vec<i64> =
            std::iter::from_fn(|| take(&mut keyed, &mut turn, |_, _| false)).map(|(_, rank)| rank).collect();
        assert_eq!(rest, [12, 0, 1, 2]);
    }
}
