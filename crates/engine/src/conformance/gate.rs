//! A sink whose writes wait or fail, and whose reads wait, when a case says so.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures_channel::oneshot;
use futures_util::FutureExt as _;
use windlass_core::{Alarm, AlarmId, Event, TaskId, Timestamp};

use crate::{
    ports::{LogLine, Now, Page, Retention, StoreError, StoredAlarm, SubmitKey, TaskQuery},
    resident::{Batch, Line, LinePlace, Recovered, RowSink, TaskRow, WakePlace, Written},
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

    /// Lists, lookups and what is brought back keep their answers from now on, until each is let go.
    pub(super) fn hold_reads(&self) {
        self.state().holds_reads = true;
    }

    /// Holds those that are held already, and no others.
    pub(super) fn hold_no_more_reads(&self) {
        self.state().holds_reads = false;
    }

    /// Lets the oldest read but `after` go.
    pub(super) fn let_read_go(&self, after: usize) {
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

#[async_trait]
impl RowSink for Gate {
    async fn recover(&self) -> Result<Recovered, StoreError> {
        self.state().has_failed = false;
        self.sink.recover().await
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

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<TaskRow>>, StoreError> {
        let kept = self.keep();
        let rows = self.sink.load(ids).await;
        kept.await;
        rows
    }

    async fn resting_page(&self, before: TaskId, limit: usize) -> Result<Vec<TaskRow>, StoreError> {
        self.sink.resting_page(before, limit).await
    }

    async fn line_page(
        &self,
        line: &Line,
        after: LinePlace,
        limit: usize,
    ) -> Result<Vec<(LinePlace, TaskRow)>, StoreError> {
        let kept = self.keep();
        let rows = self.sink.line_page(line, after, limit).await;
        kept.await;
        rows
    }

    async fn line_count(&self, line: &Line, after: LinePlace, before: LinePlace) -> Result<u64, StoreError> {
        self.sink.line_count(line, after, before).await
    }

    async fn waking(
        &self,
        after: WakePlace,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(WakePlace, TaskRow)>, StoreError> {
        let kept = self.keep();
        let rows = self.sink.waking(after, until, limit).await;
        kept.await;
        rows
    }

    async fn ended_page(&self, query: &TaskQuery) -> Result<Page<TaskRow, TaskId>, StoreError> {
        let kept = self.keep();
        let page = self.sink.ended_page(query).await;
        kept.await;
        page
    }

    async fn submit_keys(&self, scopes: &[[u8; 32]]) -> Result<Vec<Option<(TaskId, SubmitKey)>>, StoreError> {
        let kept = self.keep();
        let keys = self.sink.submit_keys(scopes).await;
        kept.await;
        keys
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        self.sink.events(task, after, limit).await
    }

    async fn logs(&self, task: TaskId, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        self.sink.logs(task, skip, limit).await
    }

    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError> {
        self.sink.alarm(id).await
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        self.sink.alarms(all, limit).await
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        self.sink.sweep(retention, now, limit).await
    }
}
