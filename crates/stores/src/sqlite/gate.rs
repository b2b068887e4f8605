//! Where the writer and the checkpoint thread agree on who goes.
//!
//! SQLite starts the write-ahead log over only when a transaction begins after every frame was copied into the
//! file. A checkpoint beside a busy writer never gets there: while it copies, more is written. So the
//! checkpoint thread copies most of the log beside the writer, then has it wait between two transactions for
//! the rest, which is little.
//!
//! Where the log cannot be copied, because the disk is full, the writer stops before the end of the log: what is
//! left of it is room that a start and a read of the state can count on.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::error::Fault;

/// The gate between transactions.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A transaction is open.
    writing: bool,
    /// No transaction may begin.
    held: bool,
    /// Frames in the log since it was last started over.
    frames: u32,
    /// What came of copying them.
    copying: Copying,
    /// The store closes: no more waiting.
    closed: bool,
}

/// What came of copying the log since it was last started over.
#[derive(Debug, Default)]
enum Copying {
    /// Nothing yet.
    #[default]
    Untried,
    /// A reader kept it from its end.
    Unfinished,
    /// It failed.
    Failed(Fault),
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a transaction may begin.
    pub(super) fn enter(&self) {
        let state = self.lock();
        let mut state =
            self.changed.wait_while(state, |state| state.held).unwrap_or_else(PoisonError::into_inner);
        state.writing = true;
    }

    /// Waits until the log may be written to beyond `frames`: not before it was tried to copy it, and not where
    /// that has failed, which is the error then.
    pub(super) fn wait_for_room(&self, frames: u32) -> Result<(), Fault> {
        let state = self.lock();
        let is_to_come = |state: &mut State| {
            state.frames >= frames && matches!(state.copying, Copying::Untried) && !state.closed
        };
        let state = self.changed.wait_while(state, is_to_come).unwrap_or_else(PoisonError::into_inner);
        match &state.copying {
            Copying::Failed(fault) if state.frames >= frames => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    /// A reader kept the log from being copied whole.
    pub(super) fn copying_unfinished(&self) {
        self.lock().copying = Copying::Unfinished;
        self.changed.notify_all();
    }

    /// The log could not be copied.
    pub(super) fn copying_failed(&self, fault: Fault) {
        self.lock().copying = Copying::Failed(fault);
        self.changed.notify_all();
    }

    /// The transaction is over, and the log has this many frames. Wakes the checkpoint thread where it waits
    /// for the writer, or when the log has `wake_at` frames.
    pub(super) fn leave(&self, frames: u32, wake_at: u32) {
        let mut state = self.lock();
        state.writing = false;
        state.frames = frames;
        if state.held || frames >= wake_at {
            self.changed.notify_all();
        }
    }

    /// Waits until the log has `frames` frames. `false`: the store closes.
    pub(super) fn wait_for_frames(&self, frames: u32) -> bool {
        let state = self.lock();
        let state = self
            .changed
            .wait_while(state, |state| state.frames < frames && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        !state.closed
    }

    /// Waits for `time`, or until the store closes.
    pub(super) fn wait(&self, time: Duration) {
        let state = self.lock();
        drop(self.changed.wait_timeout_while(state, time, |state| !state.closed));
    }

    /// Keeps the writer between transactions while `work` runs, and returns how many frames the log has by then.
    pub(super) fn hold<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut state = self.lock();
        state.held = true;
        let state =
            self.changed.wait_while(state, |state| state.writing).unwrap_or_else(PoisonError::into_inner);
        drop(state);
        let result = work();
        self.lock().held = false;
        self.changed.notify_all();
        result
    }

    /// Whether the writer is kept, or is to be.
    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        self.lock().held
    }

    /// The log was copied whole: the next transaction starts it over.
    pub(super) fn start_over(&self) {
        let mut state = self.lock();
        (state.frames, state.copying) = (0, Copying::Untried);
        drop(state);
        self.changed.notify_all();
    }

    /// Ends all waiting for frames.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}
