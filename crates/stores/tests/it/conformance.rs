//! The suite that every store passes, on a resident store over a SQLite file.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_conformance::{Bench, differ, run, run_staging};
use windlass_core::{Millis, TaskId, Timestamp};
use windlass_store::{
    Now, Store,
    memory::MemorySink,
    resident::{Resident, RestPolicy},
};
use windlass_stores::sqlite::SqliteSink;

use crate::story::{Place, options, wait};

struct Sqlite(Place, RestPolicy);

#[async_trait]
impl Bench for Sqlite {
    async fn open(&mut self, now: Now) -> Vec<Arc<dyn Store>> {
        let sink = SqliteSink::open(&self.0.path(), options()).unwrap();
        vec![Arc::new(Resident::open_with(Arc::new(sink), now, self.1).await.unwrap())]
    }

    fn keeps_claims(&self) -> bool {
        false
    }

    async fn damage(&mut self, task: TaskId) -> bool {
        let shell = rusqlite::Connection::open(self.0.path()).unwrap();
        let mut damaged = 0;
        for home in ["active", "resting", "final"] {
            let sql = format!(
                "UPDATE {home} SET state = CAST(substr(state, 1, length(state) - 1) || x'7f' AS BLOB)
                 WHERE task = (SELECT n FROM task WHERE id = ?1)"
            );
            damaged += shell.execute(&sql, [task.to_bytes()]).unwrap();
        }
        damaged == 1
    }
}

#[test]
fn a_resident_store_over_sqlite_passes() {
    run(|| Box::new(Sqlite(Place::new(), RestPolicy::default())));
}

#[test]
fn a_resident_store_over_sqlite_whose_tasks_rest_passes() {
    run(|| Box::new(Sqlite(Place::new(), RestPolicy::EAGER)));
}

#[test]
fn a_resident_store_over_sqlite_that_keeps_no_parameters_and_results_passes() {
    run(|| Box::new(Sqlite(Place::new(), RestPolicy::BARE)));
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
    for (seed, rest) in [(1, RestPolicy::EAGER), (2, RestPolicy::default()), (3, RestPolicy::BARE)] {
        let place = Place::new();
        let sink = SqliteSink::open(&place.path(), options()).unwrap();
        let sqlite = wait(Resident::open_with(Arc::new(sink), now, rest)).unwrap();
        let memory = wait(Resident::open(Arc::new(MemorySink::new([1; 32])), now)).unwrap();
        differ(seed, 5_000, Arc::new(memory), Arc::new(sqlite));
    }
}
