//! A list, sorted into what waits, what is ours and what is broken. No I/O.

use std::collections::{BTreeMap, VecDeque};

use windlass_coordinators::{KvEntry, KvList};

use super::entry::{self, Entry, Mark, Read};

/// A list, sorted.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// What nobody has taken: by `taskTime`, then by key.
    pub(super) waiting: VecDeque<Found>,
    /// What servers of Windlass have taken, and what has not ended.
    pub(super) marked: Vec<(Found, Mark)>,
    /// Why values cannot be used, by key.
    pub(super) broken: BTreeMap<String, String>,
}

/// An entry, and the key that has it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) at: KvEntry,
    pub(super) entry: Entry,
}

impl Listing {
    /// Sorts a list.
    pub(super) fn of(list: &KvList) -> Self {
        let mut listing = Self::default();
        // Consul's own tools make keys that end with a slash, and have no value.
        for at in list.entries.iter().filter(|at| !at.key.ends_with('/')) {
            match entry::read(&at.value) {
                Read::Waiting(entry) => listing.waiting.push_back(Found { at: at.clone(), entry }),
                Read::Marked(entry, mark) => listing.marked.push((Found { at: at.clone(), entry }, mark)),
                Read::Theirs => {}
                Read::Broken(why) => drop(listing.broken.insert(at.key.clone(), why)),
            }
        }
        let order = |one: &Found, other: &Found| {
            one.entry.time.total_cmp(&other.entry.time).then_with(|| one.at.key.cmp(&other.at.key))
        };
        listing.waiting.make_contiguous().sort_by(order);
        listing
    }
}

/// What an operator should know of entries that start no task. Empty if there are none.
pub(super) fn complaint<'b>(broken: impl Iterator<Item = (&'b String, &'b String)>) -> String {
    const SHOWN_MAX: usize = 10;
    const CHARS_MAX: usize = 200;

    let mut all: Vec<_> = broken.collect();
    all.sort();
    let rest = all.len().saturating_sub(SHOWN_MAX);
    let short = |text: &str| text.chars().take(CHARS_MAX).collect::<String>();
    let shown: Vec<String> =
        all.iter().take(SHOWN_MAX).map(|(key, why)| format!("{}: {}", short(key), short(why))).collect();
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    format!("{}{more}", shown.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(key: &str, value: &str) -> KvEntry {
        let (key, value) = (key.to_owned(), value.as_bytes().to_vec());
        KvEntry { key, value, flags: 0, create_index: 1, modify_index: 2 }
    }

    fn task(time: &str, taken: &str) -> String {
        format!(r#"{{"taskId":"1","taskTime":{time},"taskTaken":{taken},"taskType":"t","taskPara":{{}}}}"#)
    }

    #[test]
    fn earlier_entries_come_first_then_those_with_smaller_keys() {
        let entries = vec![
            at("p/", ""),
            at("p/a", &task("\"1000\"", "false")),
            at("p/b", &task("\"999\"", "\"false\"")),
            at("p/c", &task("999", "false")),
            at("p/d", &task("\"998.5\"", "false")),
            at("p/e", &task("\"1\"", "\"true\"")),
            at("p/f", "{"),
        ];
        let listing = Listing::of(&KvList { entries, index: 1 });
        let keys: Vec<&str> = listing.waiting.iter().map(|found| found.at.key.as_str()).collect();
        assert_eq!(keys, ["p/d", "p/b", "p/c", "p/a"]);
        assert_eq!(listing.marked.len(), 0);
        assert_eq!(listing.broken.keys().collect::<Vec<_>>(), ["p/f"]);
    }

    #[test]
    fn a_complaint_has_the_first_ten() {
        let broken: BTreeMap<String, String> = (10..30).map(|n| (format!("k{n}"), "w".repeat(300))).collect();
        let text = complaint(broken.iter());
        assert!(text.starts_with("k10: www") && text.contains("k19: ") && !text.contains("k20: "), "{text}");
        assert!(text.ends_with("; and 10 more") && text.len() < 2_200, "{}", text.len());
        assert_eq!(complaint(BTreeMap::new().iter()), "");
    }
}
