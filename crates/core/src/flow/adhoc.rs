//! Ad-hoc flows: those that tasks brought along instead of the name of a flow. They are told from others by their names, and
//! are there as long as a task of them is.

/// What the names of ad-hoc flows begin with.
pub const ADHOC_PREFIX: &str = "adhoc-";

/// Characters of a name after the prefix: 64 bits of a hash of the flow, as digits and small letters.
pub const ADHOC_HASH_CHARS: usize = 16;

/// Whether a flow of this name is one that a task brought along.
#[must_use]
pub fn is_adhoc(name: &str) -> bool {
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(ADHOC_PREFIX)
        .is_some_and(|hash| hash.len() == ADHOC_HASH_CHARS && hash.bytes().all(hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_adhoc_flows_are_told_from_others() {
        assert!(is_adhoc("adhoc-0123456789abcdef"));
        for other in
            ["adhoc", "adhoc-", "adhoc-0123456789abcde", "adhoc-0123456789abcdeF", "x-0123456789abcdef"]
        {
            assert!(!is_adhoc(other), "{other}");
        }
    }
}
