//! What is counted under the limits of a queue.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use windlass_core::{
    Millis, Name,
    planted::{Bug, is_planted},
};

use crate::port::{Limit, Starts};

/// What an attempt is counted under, as its step's `key` made it of the parameters.
pub(super) type Key = Arc<str>;

/// A limit and what counts under it.
#[derive(Debug)]
pub(super) struct LimitUse {
    pub(super) limit: Limit,
    all: Count,
    /// Where the limit is by key.
    by_key: BTreeMap<Key, Count>,
    /// What began within the last span, in its order.
    starts: VecDeque<(Millis, Option<Key>)>,
}

/// How many attempts count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Running attempts.
    pub(super) running: u32,
    /// Begun within the last span.
    pub(super) started: u32,
}

impl LimitUse {
    /// Nothing counts yet.
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, all: Count::default(), by_key: BTreeMap::new(), starts: VecDeque::new() }
    }

    /// What counts under a key; nothing = under all together.
    pub(super) fn count(&self, key: Option<&str>) -> Count {
        key.map_or(self.all, |key| self.by_key.get(key).copied().unwrap_or_default())
    }

    /// Whether an attempt must wait.
    pub(super) fn keeps_back(&self, command: &Name, key: Option<&str>) -> bool {
        !is_planted(Bug::LimitIgnored)
            && self.limit.counts(command, key).is_some_and(|key| self.is_reached(key))
    }

    /// Whether no more attempts of this key may run, or begin.
    pub(super) fn is_reached(&self, key: Option<&str>) -> bool {
        let Count { running, started } = self.count(key);
        self.limit.running.is_some_and(|most| running >= most)
            || self.limit.starts.is_some_and(|starts| started >= starts.count)
    }

    /// An attempt runs, from now on or still.
    pub(super) fn hold(&mut self, command: &Name, key: Option<&Key>) {
        self.change(command, key, |count| count.running += 1);
    }

    /// An attempt does not run any more.
    pub(super) fn let_go(&mut self, command: &Name, key: Option<&Key>) {
        self.change(command, key, |count| count.running = count.running.saturating_sub(1));
    }

    /// An attempt begins.
    pub(super) fn start(&mut self, command: &Name, key: Option<&Key>, now: Millis) {
        if self.limit.starts.is_none() || self.limit.counts(command, key.map(|key| &**key)).is_none() {
            return;
        }
        if is_planted(Bug::StartsForgotten) {
            return;
        }
        self.change(command, key, |count| count.started += 1);
        self.starts.push_back((now, key.filter(|_| self.limit.per_key).cloned()));
    }

    /// An attempt that was to begin did not.
    pub(super) fn take_back_start(&mut self, command: &Name, key: Option<&Key>, at: Millis) {
        // An attempt of another command may have been handed out at the same time.
        if self.limit.counts(command, key.map(|key| &**key)).is_none() {
            return;
        }
        let key = key.filter(|_| self.limit.per_key);
        let first = self.starts.partition_point(|(other, _)| *other < at);
        let same = |(other, of): &(Millis, Option<Key>)| *other == at && of.as_ref() == key;
        if let Some(index) = self.starts.range(first..).position(same) {
            self.starts.remove(first + index);
            self.change(command, key, |count| count.started = count.started.saturating_sub(1));
        }
    }

    /// Forgets what began longer than a span ago. Returns the keys that may go on.
    pub(super) fn pass(&mut self, now: Millis) -> Vec<Key> {
        let Some(Starts { per, .. }) = self.limit.starts else { return Vec::new() };
        let mut keys = Vec::new();
        while let Some((_, key)) = self.starts.pop_front_if(|(at, _)| at.0.saturating_add(per.0) <= now.0) {
            self.all.started = self.all.started.saturating_sub(1);
            if let Some(key) = key {
                self.change_key(&key, |count| count.started = count.started.saturating_sub(1));
                keys.push(key);
            }
        }
        keys
    }

    /// When the next start is forgotten that is not yet, of any key.
    pub(super) fn next_pass(&self, now: Millis) -> Option<Millis> {
        let per = self.limit.starts?.per.0;
        let passed = self.starts.partition_point(|(at, _)| at.0.saturating_add(per) <= now.0);
        self.starts.get(passed).map(|(at, _)| Millis(at.0.saturating_add(per)))
    }

    /// When one more attempt of this key may begin, where its starts are used up.
    pub(super) fn next_start(&self, key: Option<&str>) -> Option<Millis> {
        let starts = self.limit.starts.filter(|starts| self.count(key).started >= starts.count)?;
        let mut of_key = self.starts.iter().filter(|(_, of)| of.as_deref() == key);
        of_key.next().map(|(at, _)| Millis(at.0.saturating_add(starts.per.0)))
    }

    /// How many attempts of this key began within the last span; nothing = of all keys.
    pub(super) fn started_since(&self, key: Option<&str>, now: Millis) -> u64 {
        let per = self.limit.starts.map_or(0, |starts| starts.per.0);
        let recent = self.starts.iter().filter(|(at, _)| at.0.saturating_add(per) > now.0);
        recent.filter(|(_, of)| key.is_none() || of.as_deref() == key).count() as u64
    }

    /// The starts that were counted under the limit this one replaces: they have been, whatever is allowed now.
    pub(super) fn take_over_starts(&mut self, before: Self) {
        if self.limit.starts.is_none() || self.limit.per_key != before.limit.per_key {
            return;
        }
        for (at, key) in before.starts {
            self.all.started += 1;
            if let Some(key) = &key {
                self.change_key(key, |count| count.started += 1);
            }
            self.starts.push_back((at, key));
        }
    }

    fn change(&mut self, command: &Name, key: Option<&Key>, change: impl Fn(&mut Count)) {
        let Some(counted) = self.limit.counts(command, key.map(|key| &**key)) else { return };
        change(&mut self.all);
        if let (Some(_), Some(key)) = (counted, key) {
            self.change_key(key, change);
        }
    }

    fn change_key(&mut self, key: &Key, change: impl Fn(&mut Count)) {
        let count = self.by_key.entry(key.clone()).or_default();
        change(count);
        if *count == Count::default() {
            self.by_key.remove(key);
        }
    }
}
