//! A flag that futures wait for, without a runtime.

use std::{
    future::poll_fn,
    sync::{Mutex, PoisonError},
    task::{Poll, Waker},
};

/// Set when there is news; wakes everyone who waits, and the first to look takes it.
#[derive(Debug, Default)]
pub struct Signal {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    set: bool,
    wakers: Vec<Waker>,
}

impl Signal {
    /// There is news.
    pub fn set(&self) {
        let wakers = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.set = true;
            std::mem::take(&mut state.wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Waits for news and takes it.
    pub async fn wait(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.set {
                state.set = false;
                return Poll::Ready(());
            }
            if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                state.wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
