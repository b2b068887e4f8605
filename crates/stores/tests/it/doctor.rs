//! The doctor counts what is there and finds what is wrong.

use rusqlite::Connection;
use windlass_core::{OnFailure, TaskStatus};
use windlass_engine::{ports::StoreError, resident::RowSink};
use windlass_stores::sqlite::{OpenError, SqliteSink, doctor};

use crate::story::{Place, Story, flow, flow_change, id, options, wait, write};

fn store() -> (Place, SqliteSink) {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 2, OnFailure::Rollback);
    write(&sink, vec![flow_change(&flow)]);
    write(&sink, Story::new(&flow, id(1, 1), 1, &[]).run(1));
    write(&sink, Story::new(&flow, id(2, 2), 2, &[]).run(2));
    write(&sink, vec![Story::new(&flow, id(3, 3), 3, &[]).accept(3)]);
    (place, sink)
}

#[test]
fn a_sound_store_is_counted_while_it_is_open_and_once_it_is_closed() {
    let (place, sink) = store();
    let check = |opened_by: Option<String>| {
        let report = doctor(&place.path()).unwrap();
        assert_eq!(report.problems, [""; 0]);
        let ended = |status| report.ended[&status];
        assert_eq!((report.active, ended(TaskStatus::Succeeded), ended(TaskStatus::Failed)), (1, 2, 0));
        assert_eq!((report.flows, report.epoch, report.format), ((1, 1), 1, 2));
        assert_eq!(report.wal_bytes, options().wal_bytes);
        assert_eq!(report.opened_by, opened_by);
    };
    check(Some(format!("process {}", std::process::id())));
    // It took no lock that would keep the writer away.
    write(&sink, Vec::new());
    sink.close();
    check(None);
}

#[test]
fn rows_that_cannot_be_read_are_named() {
    let (place, sink) = store();
    sink.close();
    let shell = Connection::open(place.path()).unwrap();
    shell.execute("UPDATE active SET state = x'01ff'", []).unwrap();
    shell.execute("UPDATE history SET events = x'63' WHERE seq = 1", []).unwrap();
    shell.execute("DELETE FROM flow", []).unwrap();
    drop(shell);
    let problems = doctor(&place.path()).unwrap().problems.join("\n");
    assert!(problems.contains(&format!("state of active task {}", id(3, 3))), "{problems}");
    assert!(problems.contains("events in row 1"), "{problems}");
    assert!(problems.contains("format 99"), "{problems}");
    assert!(problems.contains("tasks of a flow that is not in the catalogue: 3"), "{problems}");

    // A start on it says which task it cannot read, and changes nothing.
    let sink = SqliteSink::open(&place.path(), options()).unwrap();
    let error = wait(sink.recover()).unwrap_err();
    assert!(
        matches!(&error, StoreError::Damaged(message) if message.contains(&id(3, 3).to_string())),
        "{error}"
    );
    sink.close();
    assert_eq!(doctor(&place.path()).unwrap().epoch, 1);
}

#[test]
fn broken_pages_are_found() {
    let (place, sink) = store();
    sink.close();
    let mut bytes = std::fs::read(place.path()).unwrap();
    let page = Connection::open(place.path())
        .unwrap()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'history'", [], |row| {
            row.get::<_, i64>(0)
        })
        .unwrap();
    let start = usize::try_from(page - 1).unwrap() * 4096;
    bytes[start..start + 4096].fill(0xab);
    std::fs::write(place.path(), bytes).unwrap();
    assert!(!doctor(&place.path()).unwrap().problems.is_empty());
}

#[test]
fn what_is_no_store_is_refused() {
    let place = Place::new();
    assert!(matches!(doctor(&place.path()).unwrap_err(), OpenError::Io { .. }));
    std::fs::write(place.path(), "hello").unwrap();
    assert!(matches!(doctor(&place.path()).unwrap_err(), OpenError::Foreign { .. }));
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 1);
}
