//! A list, sorted into what waits, what is ours and what is broken. No I/O.

use std::collections::{BTreeMap, VecDeque};

use windlass_coordinators::{KvEntry, KvList};

use super::entry::{self, Entry, Mark, Read};
use crate::task_list::settings::TaskListSettings;

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
    pub(super) fn of(list: &KvList, settings: &TaskListSettings) -> Self {
        let mut listing = Self::default();
        // Consul's own tools make keys that end with a slash, and have no value.
        for at in list.entries.iter().filter(|at| !at.key.ends_with('/')) {
            match entry::read(&at.value) {
                Read::Waiting(entry) => match entry.document(settings) {
                    Ok(_) => listing.waiting.push_back(Found { at: at.clone(), entry }),
                    Err(why) => drop(listing.broken.insert(at.key.clone(), why)),
                },
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

/// What an operator should know of entries that start no task, one text each: the first ten of them, and how many there
/// are.
pub(super) fn complaints<'b>(broken: impl Iterator<Item = (&'b String, &'b String)>) -> (Vec<String>, usize) {
    const SHOWN_MAX: usize = 10;
    const CHARS_MAX: usize = 200;

    let all: BTreeMap<_, _> = broken.collect();
    let short = |text: &str| text.chars().take(CHARS_MAX).collect::<String>();
    let shown = all.iter().take(SHOWN_MAX).map(|(key, why)| format!("{}: {}", short(key), short(why)));
    (shown.collect(), all.len())
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
        let section = toml::from_str("consul = \"consul://h\"\nflows = { t = \"f\" }").unwrap();
        let settings = crate::task_list::read(vec![section]).unwrap().remove(0);
        let entries = vec![
            at("p/", ""),
            at("p/a", &task("\"1000\"", "false")),
            at("p/b", &task("\"999\"", "\"false\"")),
            at("p/c", &task("999", "false")),
            at("p/d", &task("\"998.5\"", "false")),
            at("p/e", &task("\"1\"", "\"true\"")),
            at("p/f", "{"),
            at("p/g", &task("1", "false").replace("\"t\"", "\"u\"")),
        ];
        let listing = Listing::of(&KvList { entries, index: 1 }, &settings);
        let keys: Vec<&str> = listing.waiting.iter().map(|found| found.at.key.as_str()).collect();
        assert_eq!(keys, ["p/d", "p/b", "p/c", "p/a"]);
        assert_eq!(listing.marked.len(), 0);
        assert_eq!(listing.broken.keys().collect::<Vec<_>>(), ["p/f", "p/g"]);
    }

    #[test]
    fn complaints_are_the_first_ten() {
        let broken: BTreeMap<String, String> = (10..30).map(|n| (format!("k{n}"), "w".repeat(300))).collect();
        let (shown, count) = complaints(broken.iter());
        assert_eq!((shown.len(), count), (10, 20));
        assert!(shown[0].starts_with("k10: www") && shown[9].starts_with("k19: "), "{shown:?}");
        assert!(shown.iter().all(|text| text.len() < 210));
    }
}
