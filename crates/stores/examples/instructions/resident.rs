//! The engine's resident store over rows in memory: what a commit costs before the disk.

use std::{error::Error, sync::Arc};

use windlass_core::{Millis, Retry};
use windlass_engine::{
    memory::MemorySink,
    ports::{Change, Now, Outcome, Store as _, StoredFlow},
    resident::Resident,
};

use crate::{
    Case, Part,
    line::{NOW, batches, flow},
};

const WARM: usize = 10;
const MEASURED: usize = 40;

/// The cases of this file.
pub(crate) fn cases() -> Vec<Case> {
    vec![Case { name: "engine: a commit of 100 changes, memory", operations: MEASURED, run: commit }]
}

fn commit(part: Part) -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        let flow = flow(Retry::default())?;
        let sink = Arc::new(MemorySink::new([7; 32]));
        let store = Resident::open(sink, Now { wall: NOW, mono: Millis(0) }).await?;
        let mut batches = batches(&flow, WARM + MEASURED, store.generation())?.into_iter();
        store.commit(vec![Change::Flow(StoredFlow { flow, created_at: NOW })]).await?;
        for batch in batches.by_ref().take(part.rounds(WARM, MEASURED)) {
            let outcomes = store.commit(batch).await?;
            if outcomes.iter().any(|outcome| *outcome != Outcome::Committed) {
                return Err("a change was not taken".into());
            }
        }
        Ok(())
    })
}
