//! The suite that every store passes, on a resident store over a SQLite file.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::{Millis, Timestamp};
use windlass_engine::{
    conformance::{Bench, differ, run, run_staging},
    memory::MemorySink,
    ports::{Now, Store},
    resident::Resident,
};
use windlass_stores::sqlite::SqliteSink;

use crate::story::{Place, options, wait};

struct Sqlite(Place);

#[async_trait]
impl Bench for Sqlite {
    async fn open(&mut self, now: Now) -> Vec<Arc<dyn Store>> {
        let sink = SqliteSink::open(&self.0.path(), options()).unwrap();
        vec![Arc::new(Resident::open(Arc::new(sink), now).await.unwrap())]
    }

    fn keeps_claims(&self) -> bool {
        false
    }
}

#[test]
fn a_resident_store_over_sqlite_passes() {
    run(|| Box::new(Sqlite(Place::new())));
}

#[test]
fn a_resident_store_over_sqlite_keeps_the_order_of_writes() {
    let places: std::cell::RefCell<Vec<Place>> = Vec::new().into();
    run_staging(|| {
        let place = Place::new();
        let sink = SqliteSink::open(&place.path(), options()).unwrap();
        places.borrow_mut().push(place);
        Arc::new(sink)
    });
}

#[test]
fn sqlite_and_memory_do_the_same() {
    let now = Now { wall: Timestamp(0), mono: Millis(0) };
    for seed in 1..=2 {
        let place = Place::new();
        let sink = SqliteSink::open(&place.path(), options()).unwrap();
        let sqlite = wait(Resident::open(Arc::new(sink), now)).unwrap();
        let memory = wait(Resident::open(Arc::new(MemorySink::new([1; 32])), now)).unwrap();
        differ(seed, 5_000, Arc::new(memory), Arc::new(sqlite));
    }
}
