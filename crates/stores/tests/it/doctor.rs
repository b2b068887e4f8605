//! The doctor counts what is there and finds what is wrong.

use rusqlite::Connection;
use windlass_core::{ActKey, Actor, OnFailure, TaskId, TaskStatus};
use windlass_store::{
    Change, LogLine, QueueChange, QueuePause, StoreError,
    resident::{Room, RowSink},
};
use windlass_stores::sqlite::{OpenError, SqliteSink, doctor};

use crate::members;
use crate::story::{Place, Story, at, flow, flow_change, id, name, options, wait, write};

fn store() -> (Place, SqliteSink) {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 2, OnFailure::Rollback);
    // An export counts no flows of this kind.
    let submitted_with_a_task = self::flow("adhoc-0123456789abcdef", 1, OnFailure::Rollback);
    write(&sink, vec![flow_change(&flow), flow_change(&submitted_with_a_task)]);
    write(&sink, Story::new(&flow, id(1, 1), 1, &[]).run(1));
    write(&sink, Story::new(&flow, id(2, 2), 2, &[]).run(2));
    write(&sink, vec![Story::new(&flow, id(3, 3), 3, &[]).accept(3)]);
    (place, sink)
}

fn queue_change(named: &str, ms: i64) -> Change {
    let by = Some(Actor { name: "ops".into(), claimed: true });
    Change::Queue(QueueChange { name: name(named), paused: Some(QueuePause { at: at(ms), by }) })
}

fn log_change(task: TaskId, line: &str) -> Change {
    let key = ActKey::forward(0);
    Change::Logs(vec![LogLine { task, key, attempt: 1, at: at(6), line: line.into() }])
}

#[test]
fn a_sound_store_is_counted_while_it_is_open_and_once_it_is_closed() {
    let (place, sink) = store();
    let check = |opened_by: Option<String>| {
        let report = doctor(&place.path()).unwrap();
        assert_eq!(report.problems, [""; 0]);
        let ended = |status| report.ended[&status];
        assert_eq!((report.active, ended(TaskStatus::Succeeded), ended(TaskStatus::Failed)), (1, 2, 0));
        assert_eq!((report.flows, report.epoch, report.format), ((1, 1), 1, report.format_known));
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
    assert!(problems.contains(&format!("row 1 (task {}) of the table history", id(1, 1))), "{problems}");
    assert!(problems.contains("tasks of a flow that is not in the catalogue: 3"), "{problems}");

    // A start on it leaves the task out that it cannot read, and says which that is.
    let sink = SqliteSink::open(&place.path(), options()).unwrap();
    let recovered = wait(sink.recover(Room::ENDLESS)).unwrap();
    assert!(recovered.tasks.is_empty());
    assert_eq!(recovered.damaged.iter().map(|damaged| damaged.id).collect::<Vec<_>>(), [id(3, 3)]);
    assert!(recovered.damaged[0].reason.contains(&id(3, 3).to_string()), "{:?}", recovered.damaged);
    sink.close();
}

/// Every column of every table, changed a little: nothing of it is returned as if it had been written.
#[test]
fn a_value_that_was_changed_is_found() {
    let (place, sink) = store();
    write(&sink, vec![queue_change("paused", 5), log_change(id(1, 1), "a line")]);
    let flow = members::fan(2);
    write(&sink, vec![flow_change(&flow), members::story(&flow, id(4, 4), 3).accept(4)]);
    sink.close();
    let sound = std::fs::read(place.path()).unwrap();
    let mut changed = 0;
    for (table, column, key) in columns(&place) {
        std::fs::write(place.path(), &sound).unwrap();
        let shell = Connection::open(place.path()).unwrap();
        let set = format!(
            "UPDATE {table} SET {column} = CASE typeof({column}) WHEN 'integer' THEN {column} + 1
             WHEN 'text' THEN {column} || ' ' WHEN 'blob' THEN CAST(substr({column}, 2) || x'00' AS BLOB)
             ELSE NULL END WHERE {key} = (SELECT max({key}) FROM {table}) AND {column} IS NOT NULL"
        );
        // What a key or the kind of a table forbids cannot be tried like this.
        if shell.execute(&set, []).unwrap_or(0) == 0 {
            continue;
        }
        drop(shell);
        changed += 1;
        let problems = doctor(&place.path()).unwrap().problems.join("\n");
        let expected = format!("of the table {table} is not as it was written");
        assert!(problems.contains(&expected), "{table}.{column}: {problems}");
    }
    assert!(changed > 30, "{changed}");
}

/// All columns but checksums, each with the first column of its table.
fn columns(place: &Place) -> Vec<(String, String, String)> {
    let shell = Connection::open(place.path()).unwrap();
    let mut statement = shell
        .prepare(
            "SELECT s.name, c.name, (SELECT name FROM pragma_table_info(s.name) WHERE cid = 0)
             FROM sqlite_schema AS s, pragma_table_info(s.name) AS c
             WHERE s.type = 'table' AND s.name <> 'remains' AND c.name NOT IN ('checksum', 'orphan')",
        )
        .unwrap();
    let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    columns.collect::<Result<_, _>>().unwrap()
}

#[test]
fn what_was_changed_is_not_told() {
    let (place, sink) = store();
    sink.close();
    let shell = Connection::open(place.path()).unwrap();
    shell.execute("UPDATE task SET params = '{\"size\":4}' WHERE n = 1", []).unwrap();
    shell.execute("UPDATE history SET first = 1 WHERE task = 2 AND first > 1", []).unwrap();
    drop(shell);
    let (sink, _) = place.open();
    for (task, table) in [(id(1, 1), "task"), (id(2, 2), "history")] {
        let loaded = wait(sink.load(&[id(3, 3), task])).unwrap();
        assert!(loaded[0].is_none(), "an active task is in memory");
        let error = loaded[1].clone().unwrap().unwrap_err().reason;
        assert!(
            error.contains(&format!("the table {table}")) && error.contains(&task.to_string()),
            "{error}"
        );
    }
    let error = wait(sink.events(id(2, 2), 0, 10)).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error}");
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
