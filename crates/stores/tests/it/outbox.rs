//! What is to be announced goes with an export, and damage to it is found.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_conformance::block_on;
use windlass_core::{OnFailure, TaskId};
use windlass_store::{
    Change, Now, Outcome, Snapshot, Store, StoreError, Unannounced, archive,
    memory::{MemorySink, SharedStore},
    resident::Resident,
};
use windlass_stores::sqlite::{SqliteSink, SqliteSnapshot, doctor};

use crate::story::{Place, Story, flow, flow_change, id, now, options};

const HOUR: i64 = 3_600_000;

/// A store with tasks of which some, all or no changes are to be announced.
fn fill(store: &dyn Store) {
    let flow = flow("line", 3, OnFailure::Rollback);
    commit(store, vec![flow_change(&flow)]);
    let announces: [&dyn Fn(usize) -> bool; 4] =
        [&|_| false, &|_| true, &|n| n % 2 == 1, &|n| (2..4).contains(&n)];
    for (number, announces) in (1..).zip(announces) {
        let mut changes = Story::new(&flow, id(HOUR, number), HOUR, &[]).run(HOUR);
        for (n, change) in changes.iter_mut().enumerate() {
            if let Change::Task(change) = change {
                change.announces = announces(n);
                change.generation = store.generation();
            }
        }
        changes.into_iter().for_each(|change| commit(store, vec![change]));
    }
}

fn commit(store: &dyn Store, changes: Vec<Change>) {
    assert_eq!(block_on(store.commit(changes)).unwrap(), [Outcome::Committed]);
}

fn unannounced(store: &dyn Store) -> Vec<Unannounced> {
    block_on(store.unannounced(TaskId::NONE, 1_000)).unwrap()
}

fn open(place: &Place) -> Arc<dyn Store> {
    let sink = SqliteSink::open(&place.path(), options()).unwrap();
    Arc::new(block_on(Resident::open(Arc::new(sink), Now::default())).unwrap())
}

pub(crate) async fn export(snapshot: &mut dyn Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    archive::export(snapshot, &mut bytes, &mut |_| {}, now(0)).await.unwrap();
    bytes
}

/// An export of the store at a place.
fn exported(place: &Place) -> Vec<u8> {
    block_on(export(&mut SqliteSnapshot::new(open(place), &place.path()).unwrap()))
}

/// What goes into a store by an import comes out of it as it was.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn comes_and_goes(store: &dyn Store, again: impl FnOnce() -> Vec<u8>) {
    let place = Place::new();
    fill(&*open(&place));
    let bytes = exported(&place);
    import(store, &bytes);
    assert_eq!(unannounced(store), unannounced(&*open(&place)));
    assert!(again() == bytes, "another export is the same");
}

fn import(store: &dyn Store, bytes: &[u8]) {
    block_on(archive::import(store, &mut &bytes[..], &mut |_| {}, now(0))).unwrap();
}

#[test]
fn what_is_to_be_announced_goes_with_an_export() {
    let (place, other) = (Place::new(), Place::new());
    let store = open(&place);
    fill(&*store);
    let told = unannounced(&*store);
    assert_eq!(told.len(), 4 + 2 + 2, "{told:?}");
    let ids: Vec<_> = (1..=4).map(|number| id(HOUR, number)).collect();
    let tasks = |store: &dyn Store| -> Vec<_> {
        let loaded = block_on(store.load(&ids)).unwrap();
        let task = |loaded: Option<windlass_store::Loaded>| loaded.unwrap().task;
        let events = |id| block_on(store.events(id, 0, 1_000)).unwrap();
        loaded.into_iter().map(task).map(|task| (events(task.id), task)).collect()
    };
    let before = tasks(&*store);
    drop(store);
    let bytes = exported(&place);
    assert!(bytes.starts_with(b"windlass-export 5\n"));

    let memory = Arc::new(MemorySink::new([1; 32]));
    let resident = Arc::new(block_on(Resident::open(memory, Now::default())).unwrap());
    for store in [open(&other), resident, Arc::new(SharedStore::new([1; 32]))] {
        import(&*store, &bytes);
        assert_eq!(unannounced(&*store), told);
        assert_eq!(tasks(&*store), before);
    }
    assert_eq!(doctor(&other.path()).unwrap().problems, [""; 0]);
    assert!(exported(&other) == bytes, "another export is the same");
}

#[test]
fn an_export_of_an_empty_outbox_comes_back_empty() {
    let (place, other) = (Place::new(), Place::new());
    let store = open(&place);
    fill(&*store);
    let announced = unannounced(&*store).iter().map(Unannounced::announced).collect();
    commit(&*store, vec![Change::Announced(announced)]);
    drop(store);
    let bytes = exported(&place);
    assert!(bytes.starts_with(b"windlass-export 5\n"));
    let store = open(&other);
    import(&*store, &bytes);
    assert_eq!(unannounced(&*store), []);
}

#[test]
fn damage_to_what_is_to_be_announced_is_found() {
    for (damage, problem, left) in [
        ("UPDATE outbox SET seq = 1000", "without the history that they lead to: 1", 4),
        ("UPDATE outbox SET seq = seq + 1", "without the history that they lead to: 1", 4),
        // It is the last of its task now.
        ("UPDATE outbox SET after = 1000", "of the table outbox is not as it was written", 7),
        ("DELETE FROM history WHERE seq = (SELECT seq FROM outbox LIMIT 1) --", "lead to: 1", 4),
    ] {
        let place = Place::new();
        fill(&*open(&place));
        let shell = Connection::open(place.path()).unwrap();
        let first = "WHERE (id, after) IN (SELECT id, after FROM outbox LIMIT 1)";
        assert_eq!(shell.execute(&format!("{damage} {first}"), []).unwrap(), 1);
        drop(shell);
        let problems = doctor(&place.path()).unwrap().problems;
        assert!(problems.iter().any(|found| found.contains(problem)), "{damage}: {problems:?}");
        let store = open(&place);
        let hurt = id(HOUR, 2);
        // What is behind the row is of the same task, and would overtake it.
        assert_eq!(unannounced(&*store).len(), left, "{damage}");
        let first = block_on(store.unannounced(TaskId::NONE, 1)).unwrap();
        assert_eq!(first.len(), 1, "{damage}: damaged rows do not count");
        assert!(block_on(store.load(&[hurt])).unwrap()[0].is_some(), "its task goes on");
        let found = store.quarantine().error_of_no_task().unwrap();
        assert!(matches!(&found, StoreError::Damaged(why) if why.contains(&hurt.to_string())), "{found}");
        drop(store);
        let mut snapshot = SqliteSnapshot::new(open(&place), &place.path()).unwrap();
        let refused = block_on(archive::export(&mut snapshot, &mut Vec::new(), &mut |_| {}, now(0)));
        // An export looks at the first one.
        assert_eq!(refused.is_err(), left == 4, "{damage}: an archive without it would look whole");
    }
}
