//! A hash for spreading: it maps close numbers to distant ones.

/// The finaliser of SplitMix64.
pub(crate) fn mix(word: u64) -> u64 {
    let mut hash = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
