//! What a store should hold after each number of entries, from a second store without power cuts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, mpsc},
};

use anyhow::{Context as _, Result};
use windlass_conformance::block_on;
use windlass_store::resident::{Room, RowSink};
use windlass_stores::sqlite::SqliteSink;

use crate::{
    contents::{Contents, Names},
    ledger::{Entry, Work},
    record::{FILE, options},
};

/// Digests of the contents of a store, by the number of entries that were written to it.
#[derive(Debug, Default)]
pub(crate) struct References(BTreeMap<usize, u64>);

impl References {
    /// The digests after each number in `counts`.
    pub(crate) fn new(entries: &[Arc<Entry>], names: &Names, counts: &BTreeSet<usize>) -> Result<Self> {
        let mut digests = BTreeMap::new();
        replay(entries, names, counts, |count, contents| {
            digests.insert(count, contents.digest());
        })?;
        Ok(Self(digests))
    }

    /// Whether a store with this digest holds the result of exactly `count` entries.
    pub(crate) fn matches(&self, count: usize, digest: u64) -> bool {
        self.0.get(&count) == Some(&digest)
    }
}

/// Writes the entries to a new store, and passes its contents after each number in `counts` to the closure.
pub(crate) fn replay(
    entries: &[Arc<Entry>],
    names: &Names,
    counts: &BTreeSet<usize>,
    mut tell: impl FnMut(usize, Contents),
) -> Result<()> {
    let place = tempfile::tempdir()?;
    let sink = SqliteSink::open(&place.path().join(FILE), options())?;
    block_on(sink.recover(Room::ENDLESS))?;
    for count in 0..=entries.len() {
        if counts.contains(&count) {
            let recovered = block_on(sink.recover(Room::ENDLESS))?;
            tell(count, block_on(Contents::read(&sink, recovered, names))?);
        }
        match entries.get(count).map(|entry| &entry.work) {
            Some(Work::Batch(batch)) => {
                let (sender, receiver) = mpsc::channel();
                // The receiver is only dropped when this function has returned.
                sink.write(batch.clone(), Box::new(move |result| drop(sender.send(result))));
                receiver.recv().context("the store did not answer a batch")??;
            }
            Some(Work::Sweep(retention, now, limit)) => drop(block_on(sink.sweep(retention, *now, *limit))?),
            None => {}
        }
    }
    Ok(())
}
