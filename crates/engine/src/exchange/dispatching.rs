//! One at a time hands out. Two at once would claim for the same polls, and what the second has claimed would go back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Signal, ports::Now};

/// Rounds that one caller makes. Where a store is slow, polls come faster than a round takes: a caller that went on for all
/// of them would never commit, or never answer its own poll.
const ROUNDS_MAX: u32 = 3;

/// Lets one caller hand out at a time; it goes on for those who come meanwhile, for [`ROUNDS_MAX`] rounds.
#[derive(Debug, Default)]
pub(crate) struct Dispatching {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    under_way: bool,
    /// Somebody has come meanwhile: the time it was for the last one.
    again: Option<Now>,
}

/// Who hands out. When it is dropped before its end, the dispatcher serves the polls that came meanwhile.
pub(super) struct Turn<'d> {
    dispatching: &'d Dispatching,
    timers: &'d Signal,
    rounds: u32,
    is_over: bool,
}

impl Dispatching {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn; nothing where somebody else has it, who goes on for this one.
    pub(super) fn take<'d>(&'d self, timers: &'d Signal, now: Now) -> Option<Turn<'d>> {
        let mut state = self.state();
        if state.under_way {
            state.again = state.again.max(Some(now));
            return None;
        }
        state.under_way = true;
        Some(Turn { dispatching: self, timers, rounds: 0, is_over: false })
    }

    /// Takes the turn; nothing where somebody else has it.
    pub(super) fn try_take<'d>(&'d self, timers: &'d Signal) -> Option<Turn<'d>> {
        let is_taken = std::mem::replace(&mut self.state().under_way, true);
        (!is_taken).then(|| Turn { dispatching: self, timers, rounds: 0, is_over: false })
    }
}

impl Turn<'_> {
    /// One round is done. Returns the time for the next one, where somebody has come meanwhile. Otherwise, or after
    /// [`ROUNDS_MAX`] rounds, the turn is over; the dispatcher serves the polls that have come by then.
    pub(super) fn next(&mut self) -> Option<Now> {
        self.rounds += 1;
        let mut state = self.dispatching.state();
        let mut again = state.again.take();
        if self.rounds >= ROUNDS_MAX && again.take().is_some() {
            self.timers.set();
        }
        state.under_way = again.is_some();
        self.is_over = again.is_none();
        again
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.dispatching.state();
        state.under_way = false;
        if state.again.take().is_some() {
            self.timers.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{Millis, Timestamp};

    use super::*;

    fn at(ms: u64) -> Now {
        Now { wall: Timestamp(0), mono: Millis(ms) }
    }

    #[test]
    fn one_goes_on_for_those_who_come_meanwhile() {
        let (dispatching, timers) = (Dispatching::default(), Signal::default());
        let mut turn = dispatching.take(&timers, at(1)).unwrap();
        assert!(dispatching.take(&timers, at(3)).is_none() && dispatching.take(&timers, at(2)).is_none());
        assert_eq!(turn.next(), Some(at(3)), "with the latest time");
        assert!(dispatching.take(&timers, at(4)).is_none());
        assert_eq!((turn.next(), turn.next()), (Some(at(4)), None));
        let turn = dispatching.take(&timers, at(5)).unwrap();
        assert!(dispatching.try_take(&timers).is_none() && dispatching.try_take(&timers).is_none());
        drop(turn);
        let mut turn = dispatching.try_take(&timers).unwrap();
        assert_eq!(turn.next(), None, "who only tried does not wait for it");
    }

    #[test]
    fn a_caller_goes_on_for_others_for_a_few_rounds_only() {
        let (dispatching, timers) = (Dispatching::default(), Signal::default());
        let mut turn = dispatching.take(&timers, at(0)).unwrap();
        let mut rounds = 0;
        loop {
            assert!(dispatching.take(&timers, at(rounds)).is_none(), "a poll comes in each round");
            rounds += 1;
            assert!(rounds < 100, "it never ends");
            if turn.next().is_none() {
                break;
            }
        }
        assert_eq!(rounds, u64::from(ROUNDS_MAX));
        crate::conformance::block_on(timers.wait());
        assert!(dispatching.take(&timers, at(rounds)).is_some(), "the dispatcher has the next turn");
    }

    #[test]
    fn who_came_meanwhile_is_not_forgotten_when_the_turn_is_dropped() {
        let (dispatching, timers) = (Dispatching::default(), Signal::default());
        let turn = dispatching.take(&timers, at(1)).unwrap();
        assert!(dispatching.take(&timers, at(2)).is_none());
        drop(turn);
        assert!(dispatching.take(&timers, at(3)).is_some());
        crate::conformance::block_on(timers.wait());
    }
}
