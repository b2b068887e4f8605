//! A store of each format that was ever released, and of today's, as the SQL that makes it. Those that were released are
//! kept for ever: every later version must read them. Formats 3 to 6 were not.
//!
//! Each holds a task that succeeded, one whose rollback failed, a paused one, one that waits for a worker and one
//! that waits for its time; an alarm, a paused queue, log lines and an idempotency key. From format 7 on there are also
//! a task with members under way, a lock with a holder and one who waits, a limit, unique tasks, a flow that says how
//! long its tasks are kept, and one that came with its task. Format 8 goes on from that with what is to be announced.

use std::collections::BTreeMap;

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_conformance::block_on;
use windlass_core::{
    ActState, AlarmState, Direction, Ending, EventKind, Json, Millis, Pause, Phase, StuckKind, TaskId,
    Timestamp, Wakeup, is_adhoc,
};
use windlass_store::{
    Due, Now, Queries as _, Starts, Store as _, TaskQuery,
    resident::{Resident, Room, RowSink as _},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink, doctor};

const FORMAT_1: &str = include_str!("fixtures/store-1.sql");
const FORMAT_2: &str = include_str!("fixtures/store-2.sql");
const FORMAT_7: &str = include_str!("fixtures/store-7.sql");
const FORMAT_8: &str = include_str!("fixtures/store-8.sql");

#[test]
fn a_store_of_format_1_is_read() {
    check(FORMAT_1, 1);
}

#[test]
fn a_store_of_format_2_is_read() {
    check(FORMAT_2, 3);
}

#[test]
fn a_store_of_format_7_is_read() {
    let (store, _folder) = &check(FORMAT_7, 4);
    let query = TaskQuery { limit: 100, ..TaskQuery::default() };
    let tasks = block_on(store.tasks(&query)).unwrap().items;
    let of = |flow: &str| -> Vec<TaskId> {
        let mut ids: Vec<TaskId> = tasks
            .iter()
            .filter(|loaded| loaded.task.flow.name.as_str() == flow)
            .map(|loaded| loaded.task.id)
            .collect();
        ids.sort();
        ids
    };

    let copies = block_on(store.load(&of("copies"))).unwrap().remove(0).unwrap().task;
    assert_eq!(copies.flow.retention, Some(Millis::from_secs(7 * 24 * 3600)));
    let members = copies.state.steps[0].members.as_ref().unwrap();
    let acts: Vec<_> = (1..=4).map(|number| members.get(number).unwrap().act(Direction::Forward)).collect();
    let done: Vec<bool> = acts.iter().map(|act| act.state == ActState::Succeeded).collect();
    assert_eq!(done, [true, true, false, true]);
    assert!(matches!(acts[2].state, ActState::Delayed { .. }), "it asked to be tried later: {:?}", acts[2]);
    assert_eq!(acts[0].result, Some(Json::parse(r#"{"copied":true}"#).unwrap()));

    let kept = of("kept");
    let locks = block_on(store.locks(None, 10)).unwrap();
    assert_eq!((locks.len(), locks[0].name.as_str(), kept.len()), (1, "disk-7", 2));
    let holder = locks[0].holder.as_ref().unwrap();
    assert_eq!((holder.owner.task, holder.fence > 0), (kept[0], true));
    let waiters: Vec<TaskId> = locks[0].waiters().map(|waiter| waiter.owner.task).collect();
    assert_eq!(waiters, kept[1..]);
    let again = block_on(store.load(&kept[1..])).unwrap().remove(0).unwrap().task;
    assert_eq!(again.input.unique.as_deref(), Some("2"));

    let limits = block_on(store.limits(Now::default())).unwrap();
    let limit = &limits[0].limit;
    assert_eq!((limit.name.as_str(), limit.queue.as_str(), limit.running), ("gentle", "nobody", Some(2)));
    assert_eq!(limit.starts, Some(Starts { count: 100, per: Millis::from_secs(60) }));

    let flows = block_on(store.flows()).unwrap();
    let brought = flows.iter().find(|stored| is_adhoc(stored.flow.name.as_str())).unwrap();
    assert_eq!(of(brought.flow.name.as_str()).len(), 1);
}

#[test]
fn a_store_of_format_8_is_read() {
    let (store, _folder) = &check(&[FORMAT_7, FORMAT_8].concat(), 4);
    let told = block_on(store.unannounced(TaskId::NONE, 10)).unwrap();
    let numbers: Vec<_> = told.iter().map(|told| (told.after, told.events.len())).collect();
    assert_eq!(numbers, [(5, 3), (2, 4), (6, 4)]);
    assert!(told[0].task < told[1].task && told[1].task == told[2].task);
    let last = told[0].events.last().unwrap();
    assert_eq!(last.kind, EventKind::TaskEnded(Ending::Succeeded));
}

/// Brings a store to today's format, in which this number of tasks rests, and looks at what is in it.
fn check(store: &str, resting: u64) -> (Resident, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    Connection::open(&path).unwrap().execute_batch(store).unwrap();
    let sink = SqliteSink::open(&path, SqliteOptions::default()).unwrap();
    // What waits for its time rests from now on, and no start reads it.
    let awake = block_on(sink.recover(Room::ENDLESS)).unwrap().tasks;
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
    let start = Due::Wake { task: scheduled.id, wakeup: Wakeup::Start };
    let starts = |wall| block_on(store.due(now(wall), 10)).unwrap().contains(&start);
    assert_eq!((starts(Timestamp(at.0 - 1)), starts(at)), (false, true));

    let queues = block_on(store.queues()).unwrap();
    let paused = queues.iter().find(|queue| queue.name.as_str() == "nobody").unwrap().paused.as_ref();
    assert_eq!(&*paused.unwrap().by.as_ref().unwrap().name, "ops");
    (store, dir)
}
