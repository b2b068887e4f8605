//! A process that is killed loses nothing whose write was confirmed.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

use windlass_core::OnFailure;
use windlass_store::resident::RowSink;
use windlass_stores::sqlite::{SqliteOptions, doctor};

use crate::story::{Place, Story, flow, flow_change, id, open, wait, write};

/// Set for the process that is killed: the store it works on.
const CHILD: &str = "WINDLASS_TEST_CRASH";

/// A log so small that it is started over all the time.
fn options() -> SqliteOptions {
    SqliteOptions { wal_bytes: 256 << 10, ..SqliteOptions::default() }
}

#[test]
fn what_was_told_as_written_survives_a_kill() {
    let place = Place::new();
    for round in 0..3_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::crash_child", "--nocapture"])
            .env(CHILD, place.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Killed in mid-work, somewhere behind this many tasks.
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let written =
            lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("written ")?.parse().ok());
        let last: u64 = written.take(200 + 150 * usize::try_from(round).unwrap()).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();

        // The lock went with the process; the log is read back.
        let (sink, recovered) = open(&place.path(), options());
        assert_eq!(u64::from(recovered.epoch), 2 * round + 2);
        let base = round * 1_000_000;
        for n in base..=last {
            // Even ones were written whole, odd ones are under way.
            let (ended, active) = (
                wait(sink.load(&[id(0, n)])).unwrap()[0].is_some(),
                recovered.tasks.iter().any(|row| row.id == id(0, n)),
            );
            assert_eq!((ended, active), (n % 2 == 0, n % 2 == 1), "task {n} of {last}");
        }
        sink.close();
        assert_eq!(doctor(&place.path()).unwrap().problems, [""; 0]);
    }
}

#[test]
fn crash_child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let (sink, recovered) = open(path.as_ref(), options());
    let flow = flow("line", 3, OnFailure::Rollback);
    if recovered.flows.is_empty() {
        write(&sink, vec![flow_change(&flow)]);
    }
    let round = u64::from(recovered.epoch - 1) / 2;
    for n in (round * 1_000_000..).take(100_000) {
        let mut story = Story::new(&flow, id(0, n), 0, &[]);
        let mut changes = story.run(0);
        if n % 2 == 1 {
            changes.truncate(2);
        }
        let written = move |result: Result<(), _>| {
            result.unwrap();
            println!("written {n}");
        };
        sink.write(Arc::new(changes.into()), Box::new(written));
        // Not more than a few under way.
        if n % 8 == 7 {
            write(&sink, Vec::new());
        }
    }
}

#[test]
fn a_log_that_is_started_over_all_the_time_loses_nothing() {
    let place = Place::new();
    let (sink, _) = open(&place.path(), options());
    let flow = flow("line", 3, OnFailure::Rollback);
    write(&sink, vec![flow_change(&flow)]);
    for n in 0..2_000_u64 {
        sink.write(
            Arc::new(Story::new(&flow, id(0, n), 0, &[]).run(0).into()),
            Box::new(|result| result.unwrap()),
        );
        if n == 0 {
            write(&sink, Vec::new());
        }
        if n % 20 == 0 {
            // Readers in between, which keep the log from being started over.
            assert_eq!(wait(sink.events(id(0, 0), 0, 5)).unwrap().len(), 5);
        }
    }
    write(&sink, Vec::new());
    let wal = std::fs::metadata(place.directory.path().join("windlass.db-wal")).unwrap().len();
    assert!(wal < 8 << 20, "the log has grown to {wal} bytes");
    sink.close();
    let report = doctor(&place.path()).unwrap();
    assert_eq!((report.ended.values().sum::<u64>(), report.problems), (2_000, Vec::new()));
}
