//! The polls of a worker, by the rules of the client library.

use std::collections::{BTreeMap, BTreeSet};

/// The polls of a worker, by the numbers of their calls.
#[derive(Default)]
pub(super) struct Polls {
    pub(super) newest: u64,
    /// The slots that the newest one offers, while it is open.
    pub(super) offered: Option<u32>,
    open: BTreeSet<u64>,
    /// Whether polls were open at several servers at once: then attempts may arrive for more slots than are
    /// free, or arrive twice.
    pub(super) has_overlapped: bool,
    /// Attempts whose last report was answered since then, with the newest poll at that time.
    settled: BTreeMap<String, u64>,
}

impl Polls {
    pub(super) fn begin(&mut self, number: u64, free: u32) {
        self.has_overlapped |= !self.open.is_empty();
        self.open.insert(number);
        (self.newest, self.offered) = (number, Some(free));
    }

    /// Whether it was the newest one.
    pub(super) fn end(&mut self, number: u64) -> bool {
        self.open.remove(&number);
        let is_newest = self.newest == number;
        if is_newest {
            self.offered = None;
        }
        is_newest
    }

    /// The last report of an attempt was answered.
    pub(super) fn settle(&mut self, token: &str) {
        if self.has_overlapped {
            self.settled.insert(token.to_owned(), self.newest);
        }
    }

    /// Whether the attempt must not run again.
    pub(super) fn has_settled(&self, token: &str) -> bool {
        self.settled.contains_key(token)
    }

    /// Forgets the attempts that no open poll can bring again.
    pub(super) fn forget_settled(&mut self) {
        let oldest = self.open.first().copied().unwrap_or(self.newest + 1);
        self.settled.retain(|_, newest| *newest >= oldest);
    }
}
