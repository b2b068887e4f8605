//! The work of the store during the recording.

use std::{fs, path::Path, sync::Arc, thread};

use anyhow::{Context as _, Result, ensure};
use windlass_conformance::{block_on, differ};
use windlass_core::{Millis, Timestamp};
use windlass_store::{
    Change, Now, Store,
    memory::MemorySink,
    resident::{Resident, RestPolicy, RowSink},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink};

use crate::{
    disk::{Disk, Honesty},
    ledger::{Entry, Ledger, Noted, Opening},
    recording::Recording,
    story, vfs,
};

/// The name of the store's file in its folder.
pub(crate) const FILE: &str = "windlass.db";

/// Steps of the random walk. With fewer steps, some kinds of operations would not occur.
const WALK_STEPS: usize = 2_500;

/// Threads that commit at the same time, so that transactions contain several batches.
const THREADS: u64 = 4;

/// Tasks that each thread runs.
const TASKS_PER_THREAD: u64 = 25;

/// The operations of the store on its disk, and what it acknowledged.
#[derive(Debug)]
pub struct Recorded {
    pub(crate) recording: Recording,
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) openings: Vec<Opening>,
}

/// A small log, so that it starts over all the time. It is filled ahead, as every log is.
pub(crate) fn options() -> SqliteOptions {
    SqliteOptions { wal_bytes: 256 << 10, ..SqliteOptions::default() }
}

/// Records a new store that does everything that stores do. The store is created in an empty folder, closed and opened
/// again. The first time, a random walk uses everything that the port offers. The second time, tasks run to their ends in
/// several threads.
///
/// # Errors
/// When the store does not do what it should.
///
/// # Panics
/// When it returns a wrong answer.
pub fn record(seed: u64) -> Result<Recorded> {
    let place = tempfile::tempdir()?;
    let folder = place.path().canonicalize()?;
    let recorder = vfs::begin(&folder)?;
    let ledger = Arc::new(Ledger::new(recorder.clone()));
    let worked = work(&folder, &ledger, seed);
    vfs::end(&folder);
    worked?;

    let recorded = {
        let (entries, openings) = ledger.read();
        Recorded { recording: recorder.take(), entries, openings }
    };
    ensure!(
        recorded.entries.iter().all(|entry| entry.acknowledged_at.get().is_some()),
        "the store has not acknowledged everything that was passed to it"
    );
    // An operation that was not recorded would make every image wrong.
    let mut disk = Disk::new(&recorded.recording, Honesty::Honest);
    disk.advance(recorded.recording.operations.len());
    for (name, bytes) in disk.whole() {
        let file =
            fs::read(folder.join(&name)).with_context(|| format!("cannot read the recorded file {name}"))?;
        ensure!(file == bytes, "{name} differs from the recording");
    }
    Ok(recorded)
}

fn work(folder: &Path, ledger: &Arc<Ledger>, seed: u64) -> Result<()> {
    let now = Now { wall: Timestamp(0), mono: Millis(0) };
    let memory = block_on(Resident::open(Arc::new(MemorySink::new([1; 32])), now))?;
    let store = block_on(Resident::open_with(open(folder, ledger)?, now, RestPolicy::EAGER))?;
    differ(seed, WALK_STEPS, Arc::new(memory), Arc::new(store));

    let store = block_on(Resident::open(open(folder, ledger)?, now))?;
    let flow = story::flow("story")?;
    block_on(store.commit(vec![story::flow_change(&flow)]))?;
    let (store, flow) = (&store, &flow);
    thread::scope(|scope| {
        let numbers = |thread: u64| (1..=TASKS_PER_THREAD).map(move |n| n * THREADS + thread);
        let run = |thread| scope.spawn(move || block_on(story::run(store, flow, numbers(thread))));
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<()>>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().try_for_each(join)
    })?;
    block_on(store.commit(vec![Change::Probe]))?;
    Ok(())
}

fn open(folder: &Path, ledger: &Arc<Ledger>) -> Result<Arc<dyn RowSink>> {
    let sink = SqliteSink::open(&folder.join(FILE), options())?;
    Ok(Arc::new(Noted { sink, ledger: ledger.clone() }))
}
