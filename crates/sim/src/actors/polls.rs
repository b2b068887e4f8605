//! The polls of a worker, by the rules of the client library (`crates/client/src/worker/polls.rs`).

use std::collections::BTreeMap;

/// The polls of a worker, by the numbers of their calls.
#[derive(Default)]
pub(super) struct Polls {
    newest: u64,
    /// The open ones, each with the free slots that its server knows of at least.
    open: BTreeMap<u64, u32>,
    /// Something ended after which it may be that no server with an open poll knows of all free slots.
    is_in_doubt: bool,
    /// Whether polls were open at several servers at once: then attempts may arrive for more slots than are
    /// free, or arrive twice.
    pub(super) has_overlapped: bool,
    /// Attempts whose last report was answered since then, with the newest poll at that time.
    settled: BTreeMap<String, u64>,
}

impl Polls {
    pub(super) fn begin(&mut self, number: u64, free: u32) {
        self.has_overlapped |= !self.open.is_empty();
        self.open.insert(number, free);
        (self.newest, self.is_in_doubt) = (number, false);
    }

    pub(super) fn end(&mut self, number: u64) {
        self.open.remove(&number);
        self.is_in_doubt = true;
    }

    /// Reports were sent, which may arrive at a server with a poll.
    pub(super) fn report(&mut self, free: u32) {
        self.open.values_mut().for_each(|known| *known = (*known).min(free));
    }

    /// Reports were answered by a server that has received the poll `received`, and no newer one. They were sent with the
    /// call `seq`.
    pub(super) fn answer(&mut self, received: u64, seq: u64, free: u32) {
        match self.open.get_mut(&received) {
            Some(known) if seq > self.newest => *known = free,
            // A later poll may have arrived there as well, with fewer free slots.
            Some(_) => {}
            None => self.is_in_doubt = true,
        }
    }

    pub(super) fn is_newest_open(&self) -> bool {
        self.open.contains_key(&self.newest)
    }

    /// Whether another poll is to be opened: the newest one has ended, or no open one is at a server that knows of all free
    /// slots.
    pub(super) fn wants(&mut self, free: u32) -> bool {
        self.is_in_doubt &= self.open.values().all(|known| *known < free);
        self.is_in_doubt || !self.is_newest_open()
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
        let oldest = self.open.keys().next().copied().unwrap_or(self.newest + 1);
        self.settled.retain(|_, newest| *newest >= oldest);
    }
}
