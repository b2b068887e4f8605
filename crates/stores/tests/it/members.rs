//! Members of fanned-out steps: what is written about one of them does not grow with their number, and what is not
//! as it was written is found.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_core::{ActKey, Each, Event, EventKind, Flow, Millis, OnFailure, Task, TaskId, evolve};
use windlass_store::{
    Change, Retention, TaskChange,
    resident::{Room, RowSink},
    stored,
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink, doctor};

use crate::story::{Place, Story, at, flow, flow_change, id, now, open, tasks, wait, write};

/// A flow of one step of members.
pub(crate) fn fan(parallel: u32) -> Arc<Flow> {
    let mut flow = (*flow("fan", 1, OnFailure::Rollback)).clone();
    flow.steps[0].each = Some(Each { list: "items".into(), parallel });
    flow.into()
}

/// A task with this number of items.
pub(crate) fn story(flow: &Arc<Flow>, id: TaskId, members: usize) -> Story {
    let items: Vec<String> = (0..members).map(|n| format!("\"item-{n}\"")).collect();
    Story::with_params(flow, id, &format!(r#"{{"items":[{}]}}"#, items.join(",")))
}

/// A store with a task whose members are done but for the last two.
fn store(members: usize) -> (Place, SqliteSink, Story) {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = fan(2);
    let mut story = story(&flow, id(1, 1), members);
    write(&sink, vec![flow_change(&flow), story.accept(1)]);
    for _ in 2..members {
        write(&sink, vec![story.succeed(2, Some(r#"{"ok":true}"#))]);
    }
    (place, sink, story)
}

#[test]
fn members_come_back_with_their_results_whether_their_task_is_active_or_has_ended() {
    let (place, sink, mut story) = store(7);
    sink.close();
    let (sink, recovered) = place.open();
    assert_eq!(tasks(&recovered)[&story.task.id], *story.task);
    while !story.task.is_ended() {
        write(&sink, vec![story.succeed(3, Some(r#"{"ok":true}"#))]);
    }
    let row = wait(sink.load(&[story.task.id])).unwrap().remove(0).unwrap().unwrap();
    let flow = story.task.flow.clone();
    assert_eq!(row.into_task(|_, _| Some(flow)).unwrap(), *story.task);
}

/// A task that has done all but `left` of its members, made in one go: what it comes to is what matters here.
fn nearly_done(flow: &Arc<Flow>, members: usize, left: usize) -> (Story, Change) {
    let mut story = story(flow, id(1, 1), members);
    let Change::Task(accepted) = story.accept(1) else { unreachable!() };
    let mut task: Task = (*accepted.task).clone();
    let mut events = accepted.events.clone();
    let key = |number: usize| ActKey::forward(0).of_member(u32::try_from(number).unwrap());
    let mut happens = |kind| {
        let event = Event { at: at(1), kind };
        evolve(&mut task, &event);
        events.push(event);
    };
    for number in 1..=members - left {
        happens(EventKind::ActStarted { key: key(number), attempt: 1 });
        happens(EventKind::ActSucceeded { key: key(number), attempt: 1, result: None });
        if number + 2 <= members {
            happens(EventKind::ActReady { key: key(number + 2), attempt: 1 });
        }
    }
    let task = Arc::new(task);
    (story.task, story.events) = (task.clone(), events.clone());
    let change = TaskChange { task, events, ..*accepted };
    (story, Change::Task(Box::new(change)))
}

/// How many pages of the log each of ten reports of items takes, in a task with this number of items.
fn frames_of_ten_reports(members: usize) -> u32 {
    let place = Place::new();
    let (sink, _) = open(&place.path(), SqliteOptions { wal_bytes: 64 << 20, ..SqliteOptions::default() });
    let flow = fan(2);
    let (mut story, change) = nearly_done(&flow, members, 20);
    write(&sink, vec![flow_change(&flow), change]);
    let before = frames(&place);
    for _ in 0..10 {
        write(&sink, vec![story.succeed(2, Some(r#"{"ok":true}"#))]);
    }
    let stored = Connection::open(place.path()).unwrap();
    let longest: u32 =
        stored.query_row("SELECT max(length(state)) FROM active", [], |row| row.get(0)).unwrap();
    assert!(longest < 200, "the state of {members} members takes {longest} bytes");
    let rows: i64 = stored.query_row("SELECT count(*) FROM member", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, i64::try_from(members).unwrap() - 8, "all but those that have not begun");
    frames(&place) - before
}

/// How many frames the log has.
fn frames(place: &Place) -> u32 {
    let reader = Connection::open(place.path()).unwrap();
    reader.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1)).unwrap()
}

#[test]
fn a_report_writes_as_much_of_ten_thousand_members_as_of_thirty() {
    let (few, many) = (frames_of_ten_reports(30), frames_of_ten_reports(10_000));
    // A page of the members' rows is two levels deeper then.
    assert!(many <= few + 20, "{few} pages of 30 members, {many} of 10,000");
}

#[test]
fn members_go_when_their_task_does_a_little_at_a_time() {
    let (place, sink, mut story) = store(20);
    while !story.task.is_ended() {
        write(&sink, vec![story.succeed(3, None)]);
    }
    let flow = story.task.flow.clone();
    let mut kept = self::story(&flow, id(2, 2), 3);
    write(&sink, vec![kept.accept(4)]);
    let retention = Retention {
        tasks: Millis::from_secs(60),
        logs: Millis::from_secs(60),
        audit: Millis::from_secs(60),
        keeps_unannounced: false,
        messages_until: None,
    };
    for _ in 0..100 {
        let gone = wait(sink.sweep(&retention, now(3_600_000), 3)).unwrap();
        assert!(gone <= 3, "{gone} rows at once");
        assert_eq!(doctor(&place.path()).unwrap().problems, [""; 0]);
        if gone == 0 {
            break;
        }
    }
    let left: Vec<(i64, i64)> = {
        let shell = Connection::open(place.path()).unwrap();
        let mut rows = shell.prepare("SELECT task, count(*) FROM member GROUP BY task").unwrap();
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(left, [(2, 2)]);
}

#[test]
fn members_that_are_missing_or_too_many_are_found() {
    let damages = [
        ("DELETE FROM member WHERE number = 2", "item 2 of its step 0 is missing before 3"),
        ("UPDATE member SET step = 1 WHERE number = 4", "checksum differs"),
        ("UPDATE member SET state = x'02' WHERE number = 4", "checksum differs"),
    ];
    for (damage, expected) in damages {
        let (place, sink, story) = store(4);
        sink.close();
        Connection::open(place.path()).unwrap().execute(damage, []).unwrap();
        let problems = doctor(&place.path()).unwrap().problems.join("\n");
        assert!(problems.contains(expected), "{damage}: {problems}");
        let sink = SqliteSink::open(&place.path(), SqliteOptions::default()).unwrap();
        let recovered = wait(sink.recover(Room::ENDLESS)).unwrap();
        let [found] = &recovered.damaged[..] else { panic!("{damage}: {:?}", recovered.damaged) };
        assert!(found.id == story.task.id && found.reason.contains(expected), "{damage}: {found:?}");
        assert!(recovered.tasks.is_empty(), "{damage}");
    }
}

#[test]
fn a_member_beyond_those_of_its_step_is_found() {
    let (place, sink, _) = store(4);
    sink.close();
    // A state that would be believed, of a step that has fewer members.
    let mut fewer = story(&fan(2), id(1, 1), 3);
    fewer.accept(1);
    let shell = Connection::open(place.path()).unwrap();
    let state = stored::write_state(&fewer.task.state);
    shell.execute("UPDATE active SET state = ?1, checksum = NULL", [state]).unwrap();
    drop(shell);
    let expected = "it has item 4 of step 0, of which there are 3";
    let problems = doctor(&place.path()).unwrap().problems.join("\n");
    assert!(problems.contains(expected), "{problems}");
    let sink = SqliteSink::open(&place.path(), SqliteOptions::default()).unwrap();
    let recovered = wait(sink.recover(Room::ENDLESS)).unwrap();
    assert!(matches!(&recovered.damaged[..], [found] if found.reason.contains(expected)), "{recovered:?}");
}
