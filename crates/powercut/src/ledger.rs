//! What was passed to the store and what the store acknowledged, each with its position in the recording.
//!
//! The ledger is between the resident store and its rows, where commits are acknowledged.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use windlass_store::{
    Now, Retention, StoreError,
    resident::{Batch, Front, Recovered, Room, RowSink, Written},
};
use windlass_stores::sqlite::SqliteSink;

use crate::recording::Recorder;

/// A change of the store's contents, which takes effect completely or not at all.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// Changes that are written together.
    Batch(Arc<Batch>),
    /// The deletion of old data.
    Sweep(Retention, Now, usize),
}

/// An entry: work, in the order in which it was passed to the store.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) work: Work,
    /// The number of operations when it was passed to the store.
    pub(crate) given_at: usize,
    /// The number of operations when it was acknowledged.
    pub(crate) acknowledged_at: OnceLock<usize>,
}

/// An opening of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    /// The number of operations when the opening returned the state of the store.
    pub(crate) at: usize,
    /// How often the store had been opened by then.
    pub(crate) epoch: u32,
    /// The key of its tokens.
    pub(crate) token_key: [u8; 32],
}

/// All entries and openings of a recording.
#[derive(Debug)]
pub(crate) struct Ledger {
    recorder: Arc<Recorder>,
    entries: Mutex<Vec<Arc<Entry>>>,
    openings: Mutex<Vec<Opening>>,
}

impl Ledger {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Self {
        Self { recorder, entries: Mutex::default(), openings: Mutex::default() }
    }

    /// All entries and openings so far.
    pub(crate) fn read(&self) -> (Vec<Arc<Entry>>, Vec<Opening>) {
        (lock(&self.entries).clone(), lock(&self.openings).clone())
    }

    fn enter(&self, entries: &mut Vec<Arc<Entry>>, work: Work) -> Arc<Entry> {
        let given_at = self.recorder.position();
        let entry = Arc::new(Entry { work, given_at, acknowledged_at: OnceLock::new() });
        entries.push(entry.clone());
        entry
    }

    fn acknowledge(&self, entry: &Entry) {
        // An entry is acknowledged only once, so the value is never set already.
        let _ = entry.acknowledged_at.set(self.recorder.position());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The store's rows. The ledger records everything that passes through.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) sink: SqliteSink,
    pub(crate) ledger: Arc<Ledger>,
}

impl Front for Noted {
    fn behind(&self) -> &dyn RowSink {
        &self.sink
    }

    async fn recover(&self, room: Room) -> Result<Recovered, StoreError> {
        let recovered = self.sink.recover(room).await?;
        let Recovered { epoch, token_key, .. } = recovered;
        let at = self.ledger.recorder.position();
        lock(&self.ledger.openings).push(Opening { at, epoch, token_key });
        Ok(recovered)
    }

    fn write(&self, batch: Arc<Batch>, written: Written) {
        // The lock is kept until the sink has the batch, so that the entries are in the order of the sink.
        let mut entries = lock(&self.ledger.entries);
        let entry = self.ledger.enter(&mut entries, Work::Batch(batch.clone()));
        let ledger = self.ledger.clone();
        let noted: Written = Box::new(move |result| {
            if result.is_ok() {
                ledger.acknowledge(&entry);
            }
            written(result);
        });
        self.sink.write(batch, noted);
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        // The caller must not write batches at the same time: the position of a sweep among them would be unknown here.
        let entry = {
            let mut entries = lock(&self.ledger.entries);
            self.ledger.enter(&mut entries, Work::Sweep(*retention, now, limit))
        };
        let deleted = self.sink.sweep(retention, now, limit).await?;
        self.ledger.acknowledge(&entry);
        Ok(deleted)
    }
}
