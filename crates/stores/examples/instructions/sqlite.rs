//! The SQLite store: what the writer's transaction costs for each change in it.

use std::{
    error::Error,
    mem,
    sync::{Arc, mpsc},
};

use windlass_core::Retry;
use windlass_store::{
    Change, StoredFlow,
    resident::{Batch, Room, RowSink as _},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink};

use crate::{
    Case, Part,
    line::{BATCH, NOW, batches, flow},
};

/// Transactions: few enough that no checkpoint begins.
const WARM: usize = 10;
const MEASURED: usize = 40;

/// The cases of this file.
pub(crate) fn cases() -> Vec<Case> {
    vec![Case { name: "sqlite: a change, of 100 in a transaction", operations: MEASURED * BATCH, run: write }]
}

fn write(part: Part) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let sink = SqliteSink::open(&directory.path().join("store.db"), SqliteOptions::default())?;
    tokio::runtime::Builder::new_current_thread().build()?.block_on(sink.recover(Room::ENDLESS))?;
    let flow = flow(Retry::default())?;
    let batches = batches(&flow, WARM + MEASURED, 0)?.into_iter().map(|batch| Arc::new(Batch::from(batch)));
    let batches: Vec<Arc<Batch>> = batches.collect();
    write_one(&sink, Arc::new(vec![Change::Flow(StoredFlow { flow, created_at: NOW })].into()))?;
    for batch in &batches[..part.rounds(WARM, MEASURED)] {
        write_one(&sink, batch.clone())?;
    }
    // Closing copies the log into the file, the more the longer it is.
    mem::forget(sink);
    Ok(())
}

/// Writes a batch and waits until it is on disk.
fn write_one(sink: &SqliteSink, batch: Arc<Batch>) -> Result<(), Box<dyn Error>> {
    let (sender, receiver) = mpsc::channel();
    sink.write(batch, Box::new(move |result| drop(sender.send(result))));
    Ok(receiver.recv()??)
}
