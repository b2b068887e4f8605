//! Only one caller at a time hands out attempts. Two callers would claim for the same polls, and the claims of the
//! second one would have to be released.

use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_store::{Now, Signal};

/// The maximum number of rounds of one caller. If the store is slow, polls arrive faster than a round takes: a caller
/// that served all of them would never commit, or never answer its own poll.
const ROUNDS_MAX: u32 = 3;

/// Lets one caller at a time hand out attempts; it also serves the polls that arrive meanwhile, for [`ROUNDS_MAX`]
/// rounds.
#[derive(Debug, Default)]
pub(crate) struct Dispatching {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    under_way: bool,
    /// Another caller came meanwhile: the latest time passed in.
    again: Option<Now>,
}

/// The turn to hand out. If it is dropped before its end, the dispatcher serves the polls that arrived meanwhile.
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

    /// Takes the turn; `None` if another caller has it, which then also serves this one's polls.
    pub(super) fn take<'d>(&'d self, timers: &'d Signal, now: Now) -> Option<Turn<'d>> {
        let mut state = self.state();
        if state.under_way {
            state.again = state.again.max(Some(now));
            return None;
        }
        state.under_way = true;
        Some(Turn { dispatching: self, timers, rounds: 0, is_over: false })
    }

    /// Takes the turn; `None` if another caller has it.
    pub(super) fn try_take<'d>(&'d self, timers: &'d Signal) -> Option<Turn<'d>> {
        let is_taken = std::mem::replace(&mut self.state().under_way, true);
        (!is_taken).then(|| Turn { dispatching: self, timers, rounds: 0, is_over: false })
    }
}

impl Turn<'_> {
    /// Ends a round. Returns the time for the next round if another caller came meanwhile. Otherwise, or after
    /// [`ROUNDS_MAX`] rounds, the turn is over, and the dispatcher serves the polls that have arrived by then.
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
        futures_executor::block_on(timers.wait());
        assert!(dispatching.take(&timers, at(rounds)).is_some(), "the dispatcher has the next turn");
    }

    #[test]
    fn who_came_meanwhile_is_not_forgotten_when_the_turn_is_dropped() {
        let (dispatching, timers) = (Dispatching::default(), Signal::default());
        let turn = dispatching.take(&timers, at(1)).unwrap();
        assert!(dispatching.take(&timers, at(2)).is_none());
        drop(turn);
        assert!(dispatching.take(&timers, at(3)).is_some());
        futures_executor::block_on(timers.wait());
    }
}
