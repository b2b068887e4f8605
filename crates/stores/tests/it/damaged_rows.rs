//! Damaged rows that are of no task: none of them keeps the server from starting, or a page from being read.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_conformance::block_on;
use windlass_core::{
    Alarm, AlarmCommand, AlarmId, Flow, Millis, OnFailure, StepDefinition, StuckKind, TaskId, Timestamp,
};
use windlass_store::{
    AlarmChange, Change, Now, Outcome, Store as _, StoreError, StoredFlow,
    resident::{Resident, RowSink as _},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink, doctor};

use crate::story::{Place, Story, at, flow, flow_change, id, wait, write};

fn alarm_change(task: TaskId) -> (AlarmId, Change) {
    let alarm = AlarmId::new(StuckKind::Held, task, None);
    let raise =
        AlarmCommand::Raise { kind: StuckKind::Held.into(), task, step: None, message: "look at it".into() };
    let raised = Alarm::apply(None, &alarm, &raise, at(0)).unwrap().unwrap();
    (alarm, Change::Alarm(AlarmChange { alarm: Some(raised), before: 0, consumes: None }))
}

fn damage(place: &Place, statements: &[&str]) {
    let shell = Connection::open(place.path()).unwrap();
    for sql in statements {
        assert_eq!(shell.execute(sql, []).unwrap(), 1, "{sql}");
    }
}

fn open(place: &Place) -> Resident {
    let sink = SqliteSink::open(&place.path(), SqliteOptions::default()).unwrap();
    block_on(Resident::open(Arc::new(sink), Now { wall: Timestamp(0), mono: Millis(0) })).unwrap()
}

#[test]
fn the_other_rows_are_read() {
    let place = Place::new();
    let (sink, _) = place.open();
    let (sound, hurt) = (flow("sound", 1, OnFailure::Rollback), flow("hurt", 1, OnFailure::Rollback));
    let mut tasks = [Story::new(&sound, id(0, 1), 0, &[]), Story::new(&hurt, id(1, 2), 0, &[])];
    let mut changes = vec![flow_change(&sound), flow_change(&hurt)];
    changes.extend(tasks.iter_mut().map(|story| story.accept(0)));
    let alarms = tasks.each_ref().map(|story| alarm_change(story.task.id));
    changes.extend(alarms.iter().map(|(_, change)| change.clone()));
    write(&sink, changes);
    drop(sink);
    let alarm = &*alarms[1].0.0;
    damage(
        &place,
        &[
            "UPDATE flow SET data = x'00' WHERE name = 'hurt'",
            "INSERT INTO message (task, n, data) VALUES (zeroblob(16), 7, x'00')",
            &format!("UPDATE alarm SET data = x'00' WHERE id = '{alarm}'"),
        ],
    );

    let problems = doctor(&place.path()).unwrap().problems.join("\n");
    for expected in ["hurt", "message", alarm] {
        assert!(problems.contains(expected), "{problems}");
    }
    let (sink, recovered) = place.open();
    assert_eq!(recovered.flows.iter().map(|stored| stored.flow.name.as_str()).collect::<Vec<_>>(), ["sound"]);
    assert_eq!(recovered.damaged_flows, [(hurt.name.clone(), 1)]);
    assert!(recovered.messages.is_empty());
    let [flow, message] = &recovered.damaged[..] else { panic!("{:?}", recovered.damaged) };
    assert!(&*flow.row == "flow.hurt.1" && flow.reason.contains("flow hurt version 1"), "{flow:?}");
    assert!(message.row.starts_with("message.") && message.reason.contains("message"), "{message:?}");
    let page = wait(sink.alarms(true, 9)).unwrap();
    let [Ok(read), Err(damaged)] = &page[..] else { panic!("{page:?}") };
    assert!(damaged.id == TaskId::NONE && damaged.reason.contains(alarm), "{damaged:?}");
    assert_eq!(read.id, alarms[0].0);
    assert_eq!(wait(sink.alarm(&alarms[1].0)).unwrap(), None);
    // The next change of an alarm replaces what is damaged.
    write(&sink, vec![alarms[1].1.clone()]);
    assert!(wait(sink.alarm(&alarms[1].0)).unwrap().is_some());
    drop(sink);

    let store = open(&place);
    assert!(block_on(store.load(&[tasks[0].task.id])).unwrap()[0].is_some());
    assert!(block_on(store.load(&[tasks[1].task.id])).unwrap()[0].is_none());
    assert!(store.quarantine().error_of_no_task().is_some());
    assert!(store.quarantine().error(tasks[1].task.id).is_some());
}

#[test]
fn no_other_version_takes_the_place_of_a_damaged_one() {
    let place = Place::new();
    let (sink, _) = place.open();
    let first = flow("f", 1, OnFailure::Rollback);
    let version = |version| {
        let step = StepDefinition { ..first.steps[0].clone() };
        let flow = Arc::new(Flow { version, steps: [step].into(), ..(*first).clone() });
        Change::Flow(StoredFlow { flow, created_at: Timestamp(0) })
    };
    write(&sink, vec![version(1), version(2)]);
    drop(sink);
    let read = |store: &Resident, version| block_on(store.flow("f", version));
    let number = |found: Result<Option<StoredFlow>, StoreError>| found.unwrap().unwrap().flow.version;

    damage(&place, &["UPDATE flow SET created_at = 7 WHERE version = 1"]);
    let store = open(&place);
    assert!(matches!(read(&store, Some(1)), Err(StoreError::Damaged(_))));
    assert_eq!((number(read(&store, Some(2))), number(read(&store, None))), (2, 2));
    // Versions are counted on behind it.
    assert_eq!(block_on(store.commit(vec![version(3)])).unwrap(), [Outcome::Committed]);
    assert_eq!(number(read(&store, Some(3))), 3);
    drop(store);

    damage(&place, &["UPDATE flow SET created_at = 7 WHERE version = 3"]);
    let store = open(&place);
    for wanted in [Some(1), Some(3), None] {
        assert!(matches!(read(&store, wanted), Err(StoreError::Damaged(_))), "{wanted:?}");
    }
    assert_eq!(number(read(&store, Some(2))), 2);
}
