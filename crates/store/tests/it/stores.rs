//! The conformance suite on the stores that need nothing else.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_conformance::{Bench, block_on, differ, run, run_staging};
use windlass_core::{Millis, TaskId, Timestamp};
use windlass_store::{
    Now, Store,
    memory::{MemorySink, SharedStore},
    resident::{BodyPolicy, Resident, RestPolicy},
};

/// Rows in memory that several handles share.
struct Shared {
    store: SharedStore,
    handles: usize,
}

#[async_trait]
impl Bench for Shared {
    async fn open(&mut self, _now: Now) -> Vec<Arc<dyn Store>> {
        (0..self.handles).map(|_| Arc::new(self.store.clone()) as Arc<dyn Store>).collect()
    }

    fn keeps_claims(&self) -> bool {
        true
    }
}

/// A resident store over rows in memory.
struct InMemory(MemorySink, RestPolicy);

#[async_trait]
impl Bench for InMemory {
    async fn open(&mut self, now: Now) -> Vec<Arc<dyn Store>> {
        vec![Arc::new(Resident::open_with(Arc::new(self.0.clone()), now, self.1).await.unwrap())]
    }

    fn keeps_claims(&self) -> bool {
        false
    }

    async fn damage(&mut self, task: TaskId) -> bool {
        self.0.damage(task);
        true
    }
}

#[test]
fn a_shared_store_passes() {
    run(|| Box::new(Shared { store: SharedStore::new([1; 32]), handles: 1 }));
}

#[test]
fn a_shared_store_passes_with_two_handles() {
    run(|| Box::new(Shared { store: SharedStore::new([1; 32]), handles: 2 }));
}

#[test]
fn a_resident_store_over_memory_passes() {
    run(|| Box::new(InMemory(MemorySink::new([1; 32]), RestPolicy::default())));
}

#[test]
fn a_resident_store_whose_tasks_rest_passes() {
    run(|| Box::new(InMemory(MemorySink::new([1; 32]), RestPolicy::EAGER)));
}

#[test]
fn a_resident_store_that_keeps_no_parameters_and_results_passes() {
    run(|| Box::new(InMemory(MemorySink::new([1; 32]), RestPolicy::BARE)));
}

#[test]
fn a_resident_store_keeps_the_order_of_writes() {
    run_staging(|| Arc::new(MemorySink::new([1; 32])));
}

#[test]
fn resident_and_shared_stores_do_the_same() {
    let short = RestPolicy {
        horizon: Millis(1_000),
        page: 3,
        head: 3,
        bodies: BodyPolicy { bytes_max: 200, kept: 0 },
    };
    for (seed, rest) in
        [RestPolicy::default(), RestPolicy::EAGER, short, RestPolicy::EAGER].into_iter().enumerate()
    {
        let now = Now { wall: Timestamp(0), mono: Millis(0) };
        let sink = Arc::new(MemorySink::new([1; 32]));
        let resident = block_on(Resident::open_with(sink, now, rest)).unwrap();
        let seed = seed as u64 + 1;
        differ(seed, 5_000, Arc::new(SharedStore::new([1; 32])), Arc::new(resident));
    }
}
