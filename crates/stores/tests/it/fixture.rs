//! A store of each format that was ever written, kept for ever as the SQL that makes it: every later version must
//! read it.
//!
//! Each holds a task that succeeded, one whose rollback failed, a paused one, one that waits for a worker and one
//! that waits for its time; an alarm, a paused queue, log lines and an idempotency key.

use std::collections::BTreeMap;

use rusqlite::Connection;
use windlass_core::{AlarmState, Json, Pause, Phase, StuckKind, Timestamp, Wakeup};
use windlass_engine::{
    conformance::block_on,
    ports::{Due, Now, Store as _, TaskQuery},
    resident::{Resident, RowSink as _},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink, doctor};

const FORMAT_1: &str = include_str!("fixtures/store-1.sql");
const FORMAT_2: &str = include_str!("fixtures/store-2.sql");

#[test]
fn a_store_of_format_1_is_read() {
    check(FORMAT_1, 1);
}

#[test]
fn a_store_of_format_2_is_read() {
    check(FORMAT_2, 3);
}

/// Brings a store to today's format, in which so many tasks rest, and looks at what is in it.
fn check(store: &str, resting: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    Connection::open(&path).unwrap().execute_batch(store).unwrap();
    let sink = SqliteSink::open(&path, SqliteOptions::default()).unwrap();
    // What waits for its time rests from now on, and no start reads it.
    let awake = block_on(sink.recover()).unwrap().tasks;
    assert_eq!(awake.iter().filter(|row| row.state.phase == Phase::Scheduled).count(), 0);
    let report = doctor(&path).unwrap();
    assert_eq!(
        (report.active, report.resting, report.problems),
        (awake.len() as u64 + resting, resting, Vec::new())
    );

    let store = block_on(Resident::open(std::sync::Arc::new(sink), Now::default())).unwrap();

    let query = TaskQuery { limit: 100, ..TaskQuery::default() };
    let tasks = block_on(store.tasks(&query)).unwrap().items;
    let by_flow: BTreeMap<String, Vec<_>> = tasks.iter().fold(BTreeMap::new(), |mut flows, loaded| {
        flows.entry(loaded.task.flow.name.to_string()).or_default().push(loaded.task.clone());
        flows
    });
    assert_eq!((by_flow["deploy"].len(), by_flow["broken"].len(), by_flow["waiting"].len()), (1, 1, 3));

    let id = by_flow["deploy"][0].id;
    let deploy = block_on(store.load(&[id])).unwrap().remove(0).unwrap().task;
    assert_eq!(deploy.outcome(), Json::parse(r#"{"region":"north","size":3,"port":5432}"#).unwrap());
    assert_eq!((deploy.input.labels["team"].as_str(), deploy.input.priority), ("data", 2));
    let events = block_on(store.events(id, 0, 100)).unwrap();
    assert_eq!(events.len() as u64, deploy.state.events);
    assert_eq!(&*block_on(store.logs(id, 0, 10)).unwrap()[0].1.line, "working");

    let stuck = by_flow["broken"][0].state.stuck.as_ref().unwrap();
    assert_eq!((stuck.kind, stuck.step), (StuckKind::RollbackFailed, Some(0)));
    let alarms = block_on(store.alarms(false, 10)).unwrap();
    assert_eq!((alarms.len(), alarms[0].state), (1, AlarmState::Raised));

    let waiting = &by_flow["waiting"];
    assert_eq!(waiting.iter().filter(|task| task.state.pause == Pause::Held).count(), 1);
    assert_eq!(waiting.iter().filter(|task| task.state.phase == Phase::Scheduled).count(), 1);
    // It starts when its time has come.
    let scheduled = waiting.iter().find(|task| task.state.phase == Phase::Scheduled).unwrap();
    let now = |wall| Now { wall, ..Now::default() };
    let at = scheduled.input.at.unwrap();
    assert_eq!(block_on(store.due(now(Timestamp(at.0 - 1)), 10)).unwrap(), []);
    let start = Due::Wake { task: scheduled.id, wakeup: Wakeup::Start };
    assert_eq!(block_on(store.due(now(at), 10)).unwrap(), [start]);

    let queues = block_on(store.queues()).unwrap();
    let paused = queues.iter().find(|queue| queue.name.as_str() == "nobody").unwrap().paused.as_ref();
    assert_eq!(&*paused.unwrap().by.as_ref().unwrap().name, "ops");
}
