//! How many attempts are before one in its queue, where concurrency keys take turns.

/// A key in line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyInLine {
    /// The key, as [`fairness_bytes`](crate::rows::fairness_bytes) writes it.
    pub(crate) key: Vec<u8>,
    /// How many attempts it has in line.
    pub(crate) count: u64,
    /// How many of them stand before the one that is asked for, by rank.
    pub(crate) before: u64,
    /// The one that is asked for has this key.
    pub(crate) is_own: bool,
}

/// How many stand before the one that is asked for: first come the keys behind the one that had its turn last, then the
/// others, one of each at a time.
pub(crate) fn place_among(mut keys: Vec<KeyInLine>, turn: Option<&[u8]>) -> Option<u64> {
    keys.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    let behind = keys.iter().position(|of| turn.is_some_and(|turn| &of.key[..] > turn));
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

    #[test]
    fn a_place_is_counted_in_turns() {
        let keys = |own: &str, before| -> Vec<KeyInLine> {
            let key = |(key, count): (&str, u64)| {
                let is_own = key == own;
                KeyInLine { key: key.into(), count, before: if is_own { before } else { 0 }, is_own }
            };
            [("=c", 1), ("=a", 5), ("=b", 2)].map(key).into()
        };
        assert_eq!(place_among(keys("=c", 0), None), Some(2));
        assert_eq!(place_among(keys("=a", 4), None), Some(7));
        assert_eq!(place_among(keys("=a", 0), Some(b"=a")), Some(2));
        assert_eq!(place_among(Vec::new(), None), None);
    }
}
