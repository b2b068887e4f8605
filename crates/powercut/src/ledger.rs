//! What the store was given and what it acknowledged, each with its place in the recording.
//!
//! The ledger stands between the resident store and its rows, where commits are acknowledged.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use windlass_store::{
    Now, Retention, StoreError,
    resident::{Batch, Front, Recovered, Room, RowSink, Written},
};
use windlass_stores::sqlite::SqliteSink;

use crate::recording::Recorder;

/// Something that changes what the store holds, all of it or nothing.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// Changes that are written together.
    Batch(Arc<Batch>),
    /// Something old is deleted.
    Sweep(Retention, Now, usize),
}

/// An entry: work, in the order it was given.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) work: Work,
    /// How many operations there were when it was given.
    pub(crate) given_at: usize,
    /// How many operations there were when it was acknowledged.
    pub(crate) acknowledged_at: OnceLock<usize>,
}

/// The store was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    /// How many operations there were when its state was told.
    pub(crate) at: usize,
    /// How often it was opened by then.
    pub(crate) epoch: u32,
    /// What its tokens are signed with.
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

    /// What was written down by now.
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
        // An entry is acknowledged once, so there is nothing to be set over.
        let _ = entry.acknowledged_at.set(self.recorder.position());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The store's rows, with everything written down in the ledger.
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
        // The lock is kept until the sink has it: entries are in the order of the sink.
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
        // Nothing else may be given meanwhile, which is the caller's affair: a sweep has no place in the order
        // of batches that could be known from here.
        let entry = {
            let mut entries = lock(&self.ledger.entries);
            self.ledger.enter(&mut entries, Work::Sweep(*retention, now, limit))
        };
        let deleted = self.sink.sweep(retention, now, limit).await?;
        self.ledger.acknowledge(&entry);
        Ok(deleted)
    }
}
