//! A sink whose writes wait or fail, and whose reads wait, as a case requires.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_channel::oneshot;
use futures_util::FutureExt as _;
use windlass_store::{
    StoreError,
    resident::{Batch, Front, Recovered, Room, RowSink, Written},
};

/// A layer between a resident store and its sink.
pub struct Gate {
    sink: Arc<dyn RowSink>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    has_failed: bool,
    waiting: Vec<(Arc<Batch>, Written)>,
    /// Notified when a write waits.
    watching: Vec<oneshot::Sender<()>>,
    holds_reads: bool,
    /// Reads that must not return yet, oldest first.
    reading: Vec<oneshot::Sender<()>>,
}

impl Gate {
    /// A gate that passes everything through to `sink` until it is closed.
    #[must_use]
    pub fn new(sink: Arc<dyn RowSink>) -> Self {
        Self { sink, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes writes wait from now on.
    pub fn close(&self) {
        self.state().is_closed = true;
    }

    /// Completes once the next write waits.
    pub(crate) fn next_write(&self) -> impl Future<Output = ()> + Unpin + use<> {
        let (sender, receiver) = oneshot::channel();
        self.state().watching.push(sender);
        receiver.map(|told| told.expect("the gate stands until the case is over"))
    }

    /// Lets all waiting and later writes through.
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

    /// Lets the oldest waiting write through.
    pub(crate) fn let_write_go(&self) {
        let (batch, written) = self.state().waiting.remove(0);
        self.sink.write(batch, written);
    }

    /// Fails all waiting writes, and later ones until the rows are read again.
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

    /// Writes all waiting batches but reports them as failed, as when a power cut or a broken connection takes the
    /// answer. Later writes fail until the rows are read again.
    pub fn fail_though_written(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        for (batch, written) in waiting {
            self.sink.write(batch, Box::new(|_| written(Err(broken()))));
        }
        self.fail();
    }

    /// Whether a write waits here.
    pub(crate) fn holds_a_write(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Whether a read waits here.
    pub(crate) fn holds_a_read(&self) -> bool {
        !self.state().reading.is_empty()
    }

    /// Makes reads wait from now on, until each is released.
    pub(crate) fn hold_reads(&self) {
        self.state().holds_reads = true;
    }

    /// Keeps the waiting reads, and lets later ones through.
    pub(crate) fn hold_no_more_reads(&self) {
        self.state().holds_reads = false;
    }

    /// Releases the waiting read at index `after`, oldest first. The others keep waiting; later reads do not wait.
    pub(crate) fn let_read_go(&self, after: usize) {
        self.hold_no_more_reads();
        let read = self.state().reading.remove(after);
        read.send(()).expect("somebody waits for the answer");
    }

    /// Registers a read: it may return when the future completes.
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
                // A receiver that is gone needs no notification.
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
