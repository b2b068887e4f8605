//! The open polls of a worker, and what the servers that have them know of its free slots.
//!
//! Behind a load balancer each call may go to another server. A server hands out attempts as far as the last call that it
//! received had free slots, so work waits if no open poll is at a server that knows of a free slot.

use std::collections::BTreeMap;

/// The open polls, by the numbers of their calls.
#[derive(Debug, Default)]
pub(super) struct Polls {
    /// The free slots that the server of each open poll knows of, at least.
    open: BTreeMap<u64, u32>,
    newest: u64,
    /// Something ended after which it may be that no server with an open poll knows of all free slots.
    is_in_doubt: bool,
    has_overlapped: bool,
}

impl Polls {
    /// A poll was sent with this number of free slots.
    pub(super) fn opened(&mut self, number: u64, free: u32) {
        self.has_overlapped |= !self.open.is_empty();
        self.open.insert(number, free);
        (self.newest, self.is_in_doubt) = (number, false);
    }

    /// Reports were sent with this number of free slots. They may arrive at a server that has a poll.
    pub(super) fn reported(&mut self, free: u32) {
        self.open.values_mut().for_each(|known| *known = (*known).min(free));
    }

    /// Reports were answered by a server that had received the poll `received`, and no newer one. `free` is the number of
    /// free slots that they were sent with, if no call was sent after them: a later one may have arrived there as well, with
    /// fewer.
    pub(super) fn answered(&mut self, received: u64, free: Option<u32>) {
        match (self.open.get_mut(&received), free) {
            (Some(known), Some(free)) => *known = free,
            (Some(_), None) => {}
            (None, _) => self.is_in_doubt = true,
        }
    }

    /// Returns whether it was the newest poll.
    pub(super) fn ended(&mut self, number: u64) -> bool {
        self.open.remove(&number);
        self.is_in_doubt = true;
        number == self.newest
    }

    /// Whether another poll is to be opened, with this number of free slots: the newest one has ended, or no open poll is at
    /// a server that knows of all of them.
    pub(super) fn wants(&mut self, free: u32) -> bool {
        self.is_in_doubt &= self.open.values().all(|known| *known < free);
        self.is_due()
    }

    /// What [`Polls::wants`] has returned last, unless something has ended since.
    pub(super) fn is_due(&self) -> bool {
        self.is_in_doubt || !self.open.contains_key(&self.newest)
    }

    /// The number of open polls.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// The number of the newest poll.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// The oldest poll that may bring attempts: open or future.
    pub(super) fn oldest(&self) -> u64 {
        self.open.keys().next().copied().unwrap_or(self.newest + 1)
    }

    /// Whether polls were open at several servers at once. Then attempts may arrive for more slots than are
    /// free, or arrive twice.
    pub(super) fn has_overlapped(&self) -> bool {
        self.has_overlapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls 1 and 2, open at two servers, with these numbers of free slots.
    fn two(first: u32, second: u32) -> Polls {
        let mut polls = Polls::default();
        assert!(polls.wants(first), "there is none yet");
        polls.opened(1, first);
        polls.opened(2, second);
        assert!(!polls.wants(first.max(second)));
        polls
    }

    #[test]
    fn reports_that_reach_the_server_of_a_poll_need_no_other_poll() {
        let mut polls = two(0, 0);
        polls.reported(1);
        assert!(!polls.wants(1), "the answer says where they went");
        polls.answered(2, Some(1));
        assert!(!polls.wants(1));
        polls.reported(2);
        polls.answered(1, Some(2));
        assert!(!polls.wants(2), "an older poll will do while it is open");
    }

    #[test]
    fn reports_that_go_to_another_server_need_one() {
        let mut polls = two(0, 0);
        polls.reported(1);
        polls.answered(0, Some(1));
        assert!(polls.wants(1));
        polls.opened(3, 1);
        assert!(!polls.wants(1));
    }

    #[test]
    fn a_server_that_learned_of_fewer_slots_after_its_poll_knows_of_no_more() {
        let mut polls = two(2, 2);
        // The older poll brings attempts for all slots. The server of the newer one hears so with a report of progress.
        polls.ended(1);
        polls.reported(0);
        polls.answered(2, Some(0));
        assert!(!polls.wants(0));
        // Both slots are free again, as a third server hears.
        polls.reported(2);
        polls.answered(0, Some(2));
        assert!(polls.wants(2), "the server of the newest poll believes that none is free");
    }

    #[test]
    fn a_poll_that_ends_may_have_been_the_only_one_that_knew() {
        let mut polls = two(0, 0);
        polls.reported(2);
        polls.answered(1, Some(2));
        assert!(!polls.wants(2));
        assert!(!polls.ended(1), "not the newest");
        assert!(polls.wants(2), "the other one knows of none");
    }

    #[test]
    fn a_report_with_fewer_slots_counts_for_all_polls_as_it_may_arrive_anywhere() {
        let mut polls = two(2, 0);
        polls.reported(1);
        polls.answered(0, Some(1));
        assert!(polls.wants(2), "the server of the first poll may have received the report");
    }

    #[test]
    fn a_server_knows_what_the_reports_that_it_answered_said() {
        let mut polls = two(0, 0);
        polls.reported(1);
        polls.answered(2, Some(1));
        polls.ended(1);
        assert!(!polls.wants(1));
    }

    #[test]
    fn a_new_poll_ends_the_doubt() {
        let mut polls = two(0, 0);
        polls.ended(2);
        polls.opened(3, 0);
        assert!(!polls.wants(1), "the reports of that slot are not answered yet");
    }

    #[test]
    fn reports_from_before_a_poll_say_nothing_of_it() {
        let mut polls = Polls::default();
        polls.reported(1);
        polls.opened(1, 0);
        // Both went to one server, and the poll arrived later or has the higher number.
        polls.answered(1, None);
        polls.reported(1);
        polls.answered(0, Some(1));
        assert!(polls.wants(1), "the server of the poll knows of none");
    }

    #[test]
    fn the_answer_to_earlier_reports_takes_nothing_back() {
        let mut polls = two(0, 0);
        polls.reported(1);
        polls.reported(2);
        polls.answered(0, Some(2));
        assert!(polls.wants(2), "but it has to wait");
        polls.answered(2, None);
        assert!(polls.wants(2), "this server may not know of the second slot");
    }
}
