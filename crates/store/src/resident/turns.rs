//! Attempts with keys, and whose turn it is.
//!
//! The keys of a queue take turns, so that many attempts of one do not hold up the few of another. Each key has the
//! number of its next turn: handing out one of its attempts moves it behind the turn that was had. A key that
//! comes anew has the turn after the last that was had, so nobody gains by coming and going. Attempts without a key
//! take turns with the others as one key.
//!
//! ```text
//! lanes of a command    order: (turn, first place, key)      aside: keys that a limit keeps back
//! a: ● ● ● ● ●                 (7, ●, b) (8, ●, a)                c
//! b: ●
//! c: ● ●
//! ```
//!
//! Whoever looks for the next attempt takes keys that are at a limit out of the order, and they stand aside until
//! something counts less under it. So an attempt costs the logarithm of how many there are, whatever is limited.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{
    Name,
    planted::{Bug, is_planted},
};

use super::{limits::Key, standing::Place};

/// The ready attempts of a queue that have keys.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    commands: BTreeMap<Name, Lanes>,
    turns: BTreeMap<Key, Turn>,
    /// The turn that was had last.
    now: u64,
    /// The next turn of attempts without a key.
    keyless: u64,
}

/// The attempts of a command, by key.
#[derive(Debug, Default)]
struct Lanes {
    by_key: BTreeMap<Key, Lane>,
    /// The keys that may have their turn.
    order: BTreeSet<(u64, Place, Key)>,
}

/// The attempts of a command and a key.
#[derive(Debug, Default)]
struct Lane {
    places: BTreeSet<Place>,
    /// Where it stands in the order; nothing = it stands aside.
    stands: Option<(u64, Place)>,
}

#[derive(Debug)]
struct Turn {
    next: u64,
    /// Attempts in all lanes of the key.
    waiting: usize,
}

/// An attempt that may be next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    /// The turn that handing it out would be.
    pub(super) turn: u64,
    pub(super) place: Place,
    pub(super) command: Name,
    pub(super) key: Option<Key>,
}

/// Where a key stands among the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    /// Its next turn and its first attempt: smaller goes first.
    pub(super) next: (u64, Place),
    /// How many attempts it has.
    pub(super) waiting: u64,
}

impl Position {
    /// How many of these attempts are handed out before one of another key that has `own` attempts before it.
    pub(super) fn before(&self, other: &Self, own: u64) -> u64 {
        self.waiting.min(own + u64::from(self.next < other.next))
    }
}

impl Keyed {
    /// An attempt waits. Tells whether it did not before.
    pub(super) fn insert(&mut self, command: &Name, key: &str, place: Place) -> bool {
        let key = match self.turns.get_key_value(key) {
            Some((key, _)) => key.clone(),
            None => Key::from(key),
        };
        let turn = self.turns.entry(key.clone()).or_insert_with(|| Turn { next: self.now + 1, waiting: 0 });
        let lanes = self.commands.entry(command.clone()).or_default();
        let lane = lanes.by_key.entry(key.clone()).or_default();
        let is_aside = lane.stands.is_none() && !lane.places.is_empty();
        if !lane.places.insert(place) {
            return false;
        }
        turn.waiting += 1;
        if !is_aside && lane.stands.is_none_or(|(_, first)| place < first) {
            let next = lane.stands.map_or(turn.next, |(turn, _)| turn);
            lanes.stand(&key, Some(next));
        }
        true
    }

    /// An attempt waits no more. Tells whether it did.
    pub(super) fn remove(&mut self, command: &Name, key: &str, place: &Place) -> bool {
        let Some(key) = self.turns.get_key_value(key).map(|(key, _)| key.clone()) else { return false };
        let Some(lanes) = self.commands.get_mut(command) else { return false };
        let Some(lane) = lanes.by_key.get_mut(&key) else { return false };
        if !lane.places.remove(place) {
            return false;
        }
        let stands = lane.stands;
        if lane.places.is_empty() {
            lanes.stand(&key, None);
            lanes.by_key.remove(&key);
            if lanes.by_key.is_empty() {
                self.commands.remove(command);
            }
        } else if let Some((turn, _)) = stands.filter(|(_, first)| first == place) {
            lanes.stand(&key, Some(turn));
        }
        if let Some(turn) = self.turns.get_mut(&key) {
            turn.waiting -= 1;
            if turn.waiting == 0 {
                self.turns.remove(&key);
            }
        }
        true
    }

    /// The next of those commands that are `wanted`; keys that `keeps_back` is true for stand aside from now on.
    pub(super) fn first(
        &mut self,
        wanted: impl Fn(&Name) -> bool,
        keeps_back: impl Fn(&Name, &str) -> bool,
    ) -> Option<Candidate> {
        let Self { commands, turns, now, .. } = self;
        let lines = commands.iter_mut().filter(|(command, _)| wanted(command));
        let firsts = lines.filter_map(|(command, lanes)| {
            loop {
                let (turn, place, key) = lanes.order.first()?.clone();
                let next = turns.get(&key).map_or(turn, |turn| turn.next);
                if next > turn {
                    // It had its turn with another command since.
                    lanes.stand(&key, Some(next));
                } else if keeps_back(command, &key) {
                    lanes.stand(&key, None);
                } else {
                    // Turns that it let pass, for want of workers or by a limit, are gone.
                    let turn = turn.max(*now);
                    return Some(Candidate { turn, place, command: command.clone(), key: Some(key) });
                }
            }
        });
        firsts.min()
    }

    /// The turn that an attempt without a key would have.
    pub(super) fn keyless_turn(&self) -> u64 {
        self.keyless.max(self.now)
    }

    /// An attempt is handed out: its key has had this turn.
    pub(super) fn had(&mut self, turn: u64, key: Option<&Key>) {
        self.now = self.now.max(turn);
        match key {
            None => self.keyless = turn + 1,
            Some(key) => {
                if let Some(of_key) = self.turns.get_mut(key).filter(|_| !is_planted(Bug::TurnsIgnored)) {
                    of_key.next = turn + 1;
                }
            }
        }
    }

    /// Less counts under this key: it may have its turn again.
    pub(super) fn let_stand(&mut self, key: &Key) {
        let Some(turn) = self.turns.get(key) else { return };
        for lanes in self.commands.values_mut() {
            if lanes.by_key.get(key).is_some_and(|lane| lane.stands.is_none()) {
                lanes.stand(key, Some(turn.next));
            }
        }
    }

    /// Limits have changed: all keys may have their turn until it is found that they may not.
    pub(super) fn let_all_stand(&mut self) {
        let keys: Vec<Key> = self.turns.keys().cloned().collect();
        keys.iter().for_each(|key| self.let_stand(key));
    }

    /// Whether a limit keeps a key back.
    pub(super) fn has_aside(&self) -> bool {
        self.commands.values().any(|lanes| lanes.order.len() < lanes.by_key.len())
    }

    pub(super) fn contains(&self, command: &Name, key: &str, place: &Place) -> bool {
        let lane = self.commands.get(command).and_then(|lanes| lanes.by_key.get(key));
        lane.is_some_and(|lane| lane.places.contains(place))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The first place of each lane.
    pub(super) fn firsts(&self) -> impl Iterator<Item = &Place> {
        let lanes = self.commands.values().flat_map(|lanes| lanes.by_key.values());
        lanes.filter_map(|lane| lane.places.first())
    }

    /// How many attempts of the same key stand before one.
    pub(super) fn before(&self, key: &str, place: &Place) -> u64 {
        let lanes = self.commands.values().filter_map(|lanes| lanes.by_key.get(key));
        lanes.map(|lane| lane.places.range(..place).count() as u64).sum()
    }

    /// Each key with its next turn, its first attempt and how many it has.
    pub(super) fn standing(&self) -> impl Iterator<Item = (&str, Position)> {
        self.turns.iter().filter_map(|(key, turn)| {
            let lanes = self.commands.values().filter_map(|lanes| lanes.by_key.get(key));
            let first = *lanes.filter_map(|lane| lane.places.first()).min()?;
            let turn_next = turn.next.max(self.now);
            Some((&**key, Position { next: (turn_next, first), waiting: turn.waiting as u64 }))
        })
    }
}

impl Lanes {
    /// Has a key stand in the order with this turn, by its first place; nothing = it stands aside.
    fn stand(&mut self, key: &Key, turn: Option<u64>) {
        let Some(lane) = self.by_key.get_mut(key) else { return };
        if let Some((turn, place)) = lane.stands.take() {
            self.order.remove(&(turn, place, key.clone()));
        }
        let Some(first) = lane.places.first() else { return };
        lane.stands = turn.map(|turn| (turn, *first));
        if let Some((turn, place)) = lane.stands {
            self.order.insert((turn, place, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{ActKey, TaskId, Timestamp};

    use super::*;

    fn place(rank: i64) -> Place {
        Place { rank, task: TaskId(1), key: ActKey::forward(0), ready_at: Timestamp(0) }
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn all() -> impl Fn(&Name) -> bool {
        |_| true
    }

    /// Hands out the next.
    fn take(keyed: &mut Keyed, keeps_back: impl Fn(&Name, &str) -> bool) -> Option<(String, i64)> {
        let Candidate { turn, place, command, key } = keyed.first(all(), keeps_back)?;
        let key = key.expect("it has a key");
        keyed.had(turn, Some(&key));
        assert!(keyed.remove(&command, &key, &place));
        Some((key.to_string(), place.rank))
    }

    #[test]
    fn keys_take_turns_and_newcomers_begin_where_the_others_are() {
        let mut keyed = Keyed::default();
        (0..6).for_each(|rank| assert!(keyed.insert(&name("do"), "a", place(rank))));
        let mut taken = Vec::new();
        for rank in 10..13 {
            taken.extend(take(&mut keyed, |_, _| false));
            assert!(keyed.insert(&name("other"), "b", place(rank)));
        }
        taken.extend(std::iter::from_fn(|| take(&mut keyed, |_, _| false)));
        let order: Vec<(&str, i64)> = taken.iter().map(|(key, rank)| (key.as_str(), *rank)).collect();
        let expected =
            [("a", 0), ("a", 1), ("b", 10), ("a", 2), ("b", 11), ("a", 3), ("b", 12), ("a", 4), ("a", 5)];
        assert_eq!(order, expected);
        assert!(keyed.is_empty());
    }

    #[test]
    fn a_key_with_two_commands_has_one_turn() {
        let mut keyed = Keyed::default();
        for rank in 0..2 {
            keyed.insert(&name("one"), "a", place(rank));
            keyed.insert(&name("two"), "a", place(rank + 10));
            keyed.insert(&name("two"), "b", place(rank + 20));
        }
        let order: String =
            std::iter::from_fn(|| take(&mut keyed, |_, _| false)).map(|(key, _)| key).collect();
        assert_eq!(order, "ababaa");
    }

    #[test]
    fn a_key_that_is_kept_back_stands_aside_until_it_may_go() {
        let mut keyed = Keyed::default();
        for rank in 0..3 {
            keyed.insert(&name("do"), "a", place(rank));
            keyed.insert(&name("do"), "b", place(rank + 10));
        }
        let no_a = |_: &Name, key: &str| key == "a";
        assert_eq!(take(&mut keyed, no_a), Some(("b".to_owned(), 10)));
        assert!(keyed.has_aside());
        assert!(keyed.insert(&name("do"), "a", place(-1)), "one that comes to it stands aside as well");
        assert_eq!(take(&mut keyed, |_, _| false), Some(("b".to_owned(), 11)), "nobody said that it may go");
        keyed.let_stand(&Key::from("a"));
        assert_eq!(take(&mut keyed, |_, _| false), Some(("a".to_owned(), -1)));
        assert_eq!(take(&mut keyed, |_, _| true), None);
        keyed.let_all_stand();
        let rest: Vec<i64> =
            std::iter::from_fn(|| take(&mut keyed, |_, _| false)).map(|(_, rank)| rank).collect();
        assert_eq!(rest, [0, 12, 1, 2]);
    }
}
