//! A sink whose writes wait or fail, and whose reads wait, when a case says so.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_channel::oneshot;
use futures_util::FutureExt as _;

use super::Front;
use crate::{
    ports::StoreError,
    resident::{Batch, Recovered, Room, RowSink, Written},
};

/// Stands between a resident store and its sink.
pub struct Gate {
    sink: Arc<dyn RowSink>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    has_failed: bool,
    waiting: Vec<(Arc<Batch>, Written)>,
    /// To be told when a write waits.
    watching: Vec<oneshot::Sender<()>>,
    holds_reads: bool,
    /// Reads that may not give their answers yet, oldest first.
    reading: Vec<oneshot::Sender<()>>,
}

impl Gate {
    /// Lets everything through to `sink` until it is told otherwise.
    #[must_use]
    pub fn new(sink: Arc<dyn RowSink>) -> Self {
        Self { sink, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets writes wait from now on.
    pub fn close(&self) {
        self.state().is_closed = true;
    }

    /// Ready once the next write waits.
    pub(super) fn next_write(&self) -> impl Future<Output = ()> + Unpin + use<> {
        let (sender, receiver) = oneshot::channel();
        self.state().watching.push(sender);
        receiver.map(|told| told.expect("the gate stands until the case is over"))
    }

    /// Lets everything through that waits, and what comes after it.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.state();
            state.is_closed = false;
            std::mem::take(&mut state.waiting)
        };
        for (batch, written) in waiting {
            self.sink.write(batch, written);
        }
    }

    /// Lets the oldest write through that waits.
    pub(super) fn let_write_go(&self) {
        let (batch, written) = self.state().waiting.remove(0);
        self.sink.write(batch, written);
    }

    /// Fails everything that waits, and what comes until the rows are read again.
    pub fn fail(&self) {
        let waiting = {
            let mut state = self.state();
            (state.is_closed, state.has_failed) = (false, true);
            std::mem::take(&mut state.waiting)
        };
        for (_, written) in waiting {
            written(Err(broken()));
        }
    }

    /// Writes everything that waits and tells it as failed all the same, as when a power cut or a broken connection
    /// takes the answer. What comes until the rows are read again fails.
    pub fn fail_though_written(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        for (batch, written) in waiting {
            self.sink.write(batch, Box::new(|_| written(Err(broken()))));
        }
        self.fail();
    }

    /// Whether a write waits here.
    pub(super) fn holds_a_write(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Whether a read waits here.
    pub(super) fn holds_a_read(&self) -> bool {
        !self.state().reading.is_empty()
    }

    /// Reads keep their answers from now on, until each is let go.
    pub(super) fn hold_reads(&self) {
        self.state().holds_reads = true;
    }

    /// Holds those that are held already, and no others.
    pub(super) fn hold_no_more_reads(&self) {
        self.state().holds_reads = false;
    }

    /// Lets the oldest read but `after` go. Others that are held stay so; what is read from now on is not.
    pub(super) fn let_read_go(&self, after: usize) {
        self.hold_no_more_reads();
        let read = self.state().reading.remove(after);
        read.send(()).expect("somebody waits for the answer");
    }

    /// A read begins: it may give its answer when the future is ready.
    fn keep(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.state();
        let held = state.holds_reads.then(|| {
            let (sender, receiver) = oneshot::channel();
            state.reading.push(sender);
            receiver
        });
        async {
            if let Some(held) = held {
                held.await.expect("a case lets its reads go");
            }
        }
    }
}

fn broken() -> StoreError {
    StoreError::Unavailable("the case lets this write fail".to_owned())
}

impl Front for Gate {
    fn behind(&self) -> &dyn RowSink {
        self.sink.as_ref()
    }

    async fn recover(&self, room: Room) -> Result<Recovered, StoreError> {
        self.state().has_failed = false;
        self.sink.recover(room).await
    }

    fn write(&self, batch: Arc<Batch>, written: Written) {
        {
            let mut state = self.state();
            if state.is_closed {
                state.waiting.push((batch, written));
                // Who waits no more for it need not be told.
                for watching in state.watching.drain(..) {
                    let _ = watching.send(());
                }
                return;
            }
            if !state.has_failed {
                drop(state);
                self.sink.write(batch, written);
                return;
            }
        }
        written(Err(broken()));
    }

    async fn read<T: Send>(
        &self,
        read: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let kept = self.keep();
        let answer = read.await;
        kept.await;
        answer
    }
}
