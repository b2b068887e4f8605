//! Writes that fail for real: what was reported as written stays, what failed is not there, and work goes on.

use std::{
    fs,
    process::Command,
    sync::{Arc, mpsc},
};

use windlass_core::{Millis, OnFailure, TaskId, Timestamp};
use windlass_engine::Engine;
use windlass_store::{
    Now, StoreError,
    resident::{Recovered, Resident, Room, RowSink, Written},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink, doctor};

use crate::story::{Place, Story, flow, flow_change, id, open, options, tasks, try_write, wait, write};

/// A task whose parameters take `bytes`.
fn large(flow: &Arc<windlass_core::Flow>, n: u64, bytes: usize) -> Story {
    Story::with_params(flow, id(0, n), &format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes)))
}

#[test]
fn nothing_is_taken_before_the_state_was_read() {
    let place = Place::new();
    let sink = SqliteSink::open(&place.path(), options()).unwrap();
    assert!(matches!(try_write(&sink, Vec::new()), Err(StoreError::Unavailable(_))));
    wait(sink.recover(Room::ENDLESS)).unwrap();
    write(&sink, Vec::new());
}

#[test]
fn batches_are_told_in_order_and_a_batch_of_nothing_waits_for_those_before_it() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 1, OnFailure::Rollback);
    write(&sink, vec![flow_change(&flow)]);
    let (sender, receiver) = mpsc::channel();
    for n in 0..300_u64 {
        let sender = sender.clone();
        let changes = if n % 10 == 9 { Vec::new() } else { Story::new(&flow, id(0, n), 0, &[]).run(0) };
        let written: Written = Box::new(move |result| sender.send((n, result.is_ok())).unwrap());
        sink.write(Arc::new(changes.into()), written);
    }
    let told: Vec<_> = receiver.iter().take(300).collect();
    assert_eq!(told, (0..300).map(|n| (n, true)).collect::<Vec<_>>());
    sink.close();
    assert_eq!(doctor(&place.path()).unwrap().ended.values().sum::<u64>(), 270);
}

#[test]
fn a_server_is_ready_when_its_store_writes() {
    let place = Place::new();
    let (sink, _) = place.open();
    let now = Now { wall: Timestamp(0), mono: Millis(0) };
    let store = wait(Resident::open(Arc::new(sink), now)).unwrap();
    let engine = Engine::new(Arc::new(store), 1);
    let log = || {
        let mut path = place.path().into_os_string();
        path.push("-wal");
        fs::read(path).unwrap()
    };
    let before = log();
    wait(engine.check()).unwrap();
    assert!(log() != before, "nothing else was under way, and it has written");
    assert_eq!(wait(engine.flows()).unwrap().len(), 0);
}

#[test]
fn a_full_store_refuses_until_it_is_read_anew_and_keeps_what_it_had() {
    let place = Place::new();
    let small = SqliteOptions { file_bytes_max: Some(4 << 20), ..options() };
    let (sink, _) = open(&place.path(), small);
    let flow = flow("line", 2, OnFailure::Rollback);
    let mut kept = Story::new(&flow, id(0, 1), 0, &[]);
    write(&sink, vec![flow_change(&flow), kept.accept(0)]);

    // Several batches at once: the one that does not fit, and those behind it though they would.
    let (sender, receiver) = mpsc::channel();
    let mut step = Story::new(&flow, id(0, 2), 0, &[]);
    let batches = [vec![large(&flow, 3, 5 << 20).accept(0)], vec![step.accept(0)], Vec::new()];
    for batch in batches {
        let sender = sender.clone();
        sink.write(Arc::new(batch.into()), Box::new(move |result| sender.send(result).unwrap()));
    }
    let results: Vec<_> = receiver.iter().take(3).collect();
    assert!(results.iter().all(|result| matches!(result, Err(StoreError::Full(_)))), "{results:?}");
    assert!(try_write(&sink, vec![Story::new(&flow, id(0, 4), 0, &[]).accept(0)]).is_err());

    let recovered = wait(sink.recover(Room::ENDLESS)).unwrap();
    assert_eq!(tasks(&recovered).into_values().collect::<Vec<_>>(), [(*kept.task).clone()]);
    // What fits is taken again, on top of what was there.
    write(&sink, vec![kept.succeed(1, Some(r#"{"a":1}"#))]);
    let mut another = Story::new(&flow, id(0, 5), 0, &[]);
    write(&sink, vec![another.accept(0)]);
    assert_eq!(wait(sink.events(kept.task.id, 0, 100)).unwrap(), kept.stored_events());
    sink.close();
    let (_sink, recovered) = place.open();
    let expected = [(*kept.task).clone(), (*another.task).clone()];
    assert_eq!(tasks(&recovered).into_values().collect::<Vec<_>>(), expected);
    assert_eq!(doctor(&place.path()).unwrap().problems, [""; 0]);
}

/// Runs a test in a process whose files may have 4 MiB.
fn run_limited(test: &str, variable: &str, place: &Place) {
    // Blocks of 512 bytes.
    let script = r#"trap '' XFSZ; ulimit -f 8192; exec "$0" --exact "$1" --nocapture"#;
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(variable, place.path())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("child: done"), "{text}");
}

/// Set for the process that [`an_io_error_is_not_built_upon`] starts: the store it works on.
const CHILD: &str = "WINDLASS_TEST_IO_ERROR";

/// Set for the process of another test: its store, with a log that cannot be copied into the file because that may not grow.
const FULL_CHILD: &str = "WINDLASS_TEST_NO_ROOM";

/// The kernel refuses writes beyond a size (`ulimit -f`), which SQLite sees as an I/O error. The limit is one
/// of a whole process, so the work is done in one of its own.
#[test]
fn an_io_error_is_not_built_upon() {
    let place = Place::new();
    run_limited("failure::io_error_child", CHILD, &place);
    let report = doctor(&place.path()).unwrap();
    assert_eq!((report.active, report.problems), (2, Vec::new()));
}

#[test]
fn io_error_child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let (sink, _) = open(path.as_ref(), options());
    let flow = flow("line", 2, OnFailure::Rollback);
    let mut kept = Story::new(&flow, id(0, 1), 0, &[]);
    write(&sink, vec![flow_change(&flow), kept.accept(0)]);
    // One transaction is more than the log may have.
    let error = try_write(&sink, vec![large(&flow, 2, 6 << 20).accept(0)]).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let mut late = Story::new(&flow, id(0, 3), 0, &[]);
    let change = late.accept(0);
    assert!(try_write(&sink, vec![change.clone()]).is_err(), "nothing is written before the state was read");
    let recovered = wait(sink.recover(Room::ENDLESS)).unwrap();
    assert_eq!(tasks(&recovered).into_values().collect::<Vec<_>>(), [(*kept.task).clone()]);
    // The log was copied into the file, and has its full size again.
    let mut wal = path.clone();
    wal.push("-wal");
    assert_eq!(fs::metadata(wal).unwrap().len(), options().wal_bytes);
    write(&sink, vec![kept.succeed(1, None), change]);
    sink.close();
    println!("child: done");
}

/// Writes until it is refused. Returns what was accepted, and the error.
fn fill(sink: &SqliteSink, flow: &Arc<windlass_core::Flow>, from: u64) -> (Vec<TaskId>, StoreError) {
    let mut taken = Vec::new();
    for n in from..from + 1_000 {
        match try_write(sink, vec![large(flow, n, 10_000).accept(0)]) {
            Ok(()) => taken.push(id(0, n)),
            Err(error) => return (taken, error),
        }
    }
    panic!("it is never full");
}

#[test]
fn a_log_that_cannot_be_copied_keeps_room_for_reading_and_for_a_start() {
    let place = Place::new();
    run_limited("failure::no_room_child", FULL_CHILD, &place);

    // There is room now: it goes on where it was.
    let (sink, recovered) = place.open();
    let flow = recovered.flows[0].flow.clone();
    write(&sink, vec![large(&flow, 5_000, 10_000).accept(0)]);
    sink.close();
    let report = doctor(&place.path()).unwrap();
    assert_eq!((report.active, report.problems), (recovered.tasks.len() as u64 + 1, Vec::new()));
}

#[test]
fn no_room_child() {
    let Some(path) = std::env::var_os(FULL_CHILD) else { return };
    let wal = || fs::metadata(format!("{}-wal", path.to_string_lossy())).unwrap().len();
    let ids = |recovered: &Recovered| recovered.tasks.iter().map(|row| row.id).collect::<Vec<_>>();
    let (sink, recovered) = open(path.as_ref(), options());
    let flow = flow("line", 2, OnFailure::Rollback);
    write(&sink, vec![flow_change(&flow)]);
    let (taken, error) = fill(&sink, &flow, 0);
    assert!(!matches!(error, StoreError::Damaged(_)), "{error}");
    assert!(taken.len() > 100, "{}", taken.len());
    assert_eq!(wal(), options().wal_bytes, "the log is as large as it was");
    // It is read as often as anybody likes, and no room is used up by it.
    for _ in 0..200 {
        let again = wait(sink.recover(Room::ENDLESS)).unwrap();
        assert_eq!((ids(&again), again.epoch), (taken.clone(), recovered.epoch));
    }
    assert!(try_write(&sink, vec![large(&flow, 2_000, 100).accept(0)]).is_err());
    drop(sink);

    for start in 1..4 {
        let (sink, again) = open(path.as_ref(), options());
        assert_eq!((ids(&again), again.epoch), (taken.clone(), recovered.epoch + start));
        assert!(try_write(&sink, vec![large(&flow, 2_000, 100).accept(0)]).is_err());
        assert_eq!(wait(sink.events(taken[0], 0, 10)).unwrap().len(), 2);
    }
    assert_eq!(wal(), options().wal_bytes);
    println!("child: done");
}
