//! Ad-hoc flows: those that were submitted with a task instead of the name of a flow. They are recognized by their
//! names, and exist as long as one of their tasks exists.

/// The prefix of the names of ad-hoc flows.
pub const ADHOC_PREFIX: &str = "adhoc-";

/// The number of characters after the prefix: 64 bits of a hash of the flow, as digits and small letters.
pub const ADHOC_HASH_CHARS: usize = 16;

/// Whether a flow of this name was submitted with a task.
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
