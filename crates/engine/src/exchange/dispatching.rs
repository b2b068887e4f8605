//! One at a time hands out. Two at once would claim for the same polls, and what the second has claimed would go back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Signal, ports::Now};

/// Lets one caller hand out at a time; it goes on for those who come meanwhile.
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

/// Who hands out. When it is dropped before its end, whoever came meanwhile is seen to by the dispatcher.
pub(super) struct Turn<'d> {
    dispatching: &'d Dispatching,
    timers: &'d Signal,
    rounds: usize,
    is_over: bool,
}

/// Rounds of one turn. Where rounds take long, somebody comes in each of them: without an end, the first caller would never get
/// on with anything else.
const ROUNDS_MAX: usize = 4;

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
    /// One round is done. Gives the time for the next one, where somebody has come meanwhile; else the turn is over.
    /// After many rounds the dispatcher goes on.
    pub(super) fn next(&mut self) -> Option<Now> {
        self.rounds += 1;
        if self.rounds == ROUNDS_MAX {
            return None;
        }
        let mut state = self.dispatching.state();
        let again = state.again.take();
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
    use std::{
        future::Future as _,
        pin::pin,
        task::{Context, Waker},
    };

    use windlass_core::{Millis, Timestamp};

    use super::*;

    fn at(ms: u64) -> Now {
        Now { wall: Timestamp(0), mono: Millis(ms) }
    }

    #[test]
    fn a_turn_ends_although_somebody_comes_in_each_round() {
        let (dispatching, timers) = (Dispatching::default(), Signal::default());
        let mut turn = dispatching.take(&timers, at(0)).unwrap();
        for round in 1..ROUNDS_MAX as u64 {
            assert!(dispatching.take(&timers, at(round)).is_none());
            assert_eq!(turn.next(), Some(at(round)));
        }
        assert!(dispatching.take(&timers, at(9)).is_none());
        assert_eq!(turn.next(), None);
        drop(turn);
        // The last one to come is left to the dispatcher.
        let woken = pin!(timers.wait()).poll(&mut Context::from_waker(Waker::noop()));
        assert!(woken.is_ready());
        assert!(dispatching.take(&timers, at(10)).is_some());
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
    fn who_came_meanwhile_is_not_forgotten_when_the_turn_is_dropped() {
        let (dispatching, timers) = (Dispatching::default(), Signal::default());
        let turn = dispatching.take(&timers, at(1)).unwrap();
        assert!(dispatching.take(&timers, at(2)).is_none());
        drop(turn);
        assert!(dispatching.take(&timers, at(3)).is_some());
        crate::conformance::block_on(timers.wait());
    }
}
