//! Whose turn it is among the concurrency keys of a queue.
//!
//! Keys take turns in rounds. A round has the keys that had a ready attempt when it began. Each of them has one turn, in
//! their order, and the key that had its turn last is where the round is. An attempt that becomes ready later waits for the
//! next round, so a stream of new keys never delays older ones. Attempts without a key count as one key, which is the smallest.
//! Within a key the smallest rank goes first.
//!
//! A key is skipped while limits hold all of its attempts back, or while nobody asks for their commands.

use windlass_core::{
    Timestamp,
    planted::{Bug, is_planted},
};

/// Where the round of a queue is. The keys `K` are in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn<K> {
    /// The key that had its turn last.
    pub key: K,
    /// When the round began: it is of keys that had something ready by then.
    pub began: Timestamp,
}

/// The keys of a queue with attempts that may be handed out now.
pub trait KeysInLine<K> {
    /// The first key behind the one that had its turn last, with an attempt that was ready when the round began.
    fn behind(&mut self, turn: &Turn<K>) -> Option<K>;

    /// The first of all keys.
    fn first(&mut self) -> Option<K>;
}

impl<K> Turn<K> {
    /// The turn after `turn`: the next one in its round, or the first one of a new round.
    pub fn next(turn: Option<&Self>, now: Timestamp, keys: &mut impl KeysInLine<K>) -> Option<Self> {
        // A round that begins later than now is over: the clock was set back.
        let turn = turn.filter(|turn| turn.began <= now && !is_planted(Bug::TurnsIgnored));
        let in_round = turn.and_then(|turn| Some(Self { key: keys.behind(turn)?, began: turn.began }));
        in_round.or_else(|| Some(Self { key: keys.first()?, began: now }))
    }
}

/// A key in line, for [`place_among`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInLine<K> {
    /// The key.
    pub key: K,
    /// How many attempts it has in line.
    pub count: u64,
    /// How many of them stand before the one that is asked for, by rank. Only that of its own key counts.
    pub before: u64,
    /// The one that is asked for has this key.
    pub is_own: bool,
}

/// How many attempts stand before the one that is asked for, if nothing comes or is held back: first come the keys behind the
/// one that had its turn last, then the others, one of each at a time.
pub fn place_among<K: Ord>(mut keys: Vec<KeyInLine<K>>, last: Option<&K>) -> Option<u64> {
    keys.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    let behind = keys.iter().position(|of| last.is_some_and(|last| of.key > *last));
    keys.rotate_left(behind.unwrap_or(0));
    let own = keys.iter().position(|of| of.is_own)?;
    let round = keys[own].before;
    let others = keys.iter().enumerate().filter(|(index, _)| *index != own);
    let before = others.map(|(index, of)| of.count.min(round + u64::from(index < own)));
    Some(round + before.sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys with the times since which they are ready.
    struct Line<'l>(&'l [(&'static str, i64)]);

    impl KeysInLine<&'static str> for Line<'_> {
        fn behind(&mut self, turn: &Turn<&'static str>) -> Option<&'static str> {
            let mut behind = self.0.iter().filter(|(key, at)| *key > turn.key && *at <= turn.began.0);
            behind.next().map(|(key, _)| *key)
        }

        fn first(&mut self) -> Option<&'static str> {
            self.0.first().map(|(key, _)| *key)
        }
    }

    #[test]
    fn a_round_goes_on_behind_the_last_turn_and_the_next_one_is_of_all() {
        let next = |turn: Option<(&'static str, i64)>, now, line: &[(&'static str, i64)]| {
            let turn = turn.map(|(key, began)| Turn { key, began: Timestamp(began) });
            Turn::next(turn.as_ref(), Timestamp(now), &mut Line(line)).map(|turn| (turn.key, turn.began.0))
        };
        let line = [("a", 10), ("b", 60), ("c", 10)];
        assert_eq!(next(None, 50, &line), Some(("a", 50)));
        assert_eq!(next(Some(("a", 50)), 70, &line), Some(("c", 50)), "b came after the round began");
        assert_eq!(next(Some(("c", 50)), 70, &line), Some(("a", 70)));
        assert_eq!(next(Some(("a", 70)), 70, &line), Some(("b", 70)));
        assert_eq!(next(Some(("a", 70)), 65, &line), Some(("a", 65)), "the clock was set back");
        assert_eq!(next(Some(("a", 70)), 70, &[]), None);
    }

    #[test]
    fn a_place_is_counted_in_turns() {
        let keys = |own: &str, before| -> Vec<KeyInLine<String>> {
            let key = |(key, count): (&str, u64)| {
                let is_own = key == own;
                KeyInLine { key: key.into(), count, before: if is_own { before } else { 0 }, is_own }
            };
            [("c", 1), ("a", 5), ("b", 2)].map(key).into()
        };
        assert_eq!(place_among(keys("c", 0), None), Some(2));
        assert_eq!(place_among(keys("a", 4), None), Some(7));
        assert_eq!(place_among(keys("a", 0), Some(&"a".to_owned())), Some(2));
        assert_eq!(place_among::<String>(Vec::new(), None), None);
    }
}
