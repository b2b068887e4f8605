//! What is kept too long goes, all of it, a little at a time.

use rusqlite::Connection;
use windlass_core::{
    ActKey, Alarm, AlarmCommand, AlarmId, Input, Millis, OnFailure, Parent, StuckKind, Task,
};
use windlass_store::{AlarmChange, Change, LogLine, Retention, SubmitKey, TaskChange, resident::RowSink};

use crate::story::{Place, Story, at, flow, flow_change, id, now, wait, write};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

fn log(task: windlass_core::TaskId, ms: i64) -> Change {
    let line = |n: i64| LogLine {
        task,
        key: ActKey::forward(0),
        attempt: 1,
        at: at(ms),
        line: n.to_string().into(),
    };
    Change::Logs((0..10).map(line).collect())
}

fn counts(place: &Place) -> Vec<(&'static str, i64)> {
    let connection = Connection::open(place.path()).unwrap();
    let count = |table| connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0));
    // The line with the highest number is blanked instead of deleted, so that the number never comes again.
    let lines = "log WHERE task <> zeroblob(16)";
    ["task", "final", "history", "submit_key", "alarm", lines, "active", "remains"]
        .into_iter()
        .map(|table| (table, count(table).unwrap()))
        .collect()
}

#[test]
fn a_child_that_succeeded_stays_until_the_topmost_above_it_has_ended() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 1, OnFailure::Hold);
    write(&sink, vec![flow_change(&flow)]);
    let mut top = Story::new(&flow, id(0, 1), 0, &[]);
    write(&sink, vec![top.accept(0)]);
    let mut child = Story::new(&flow, id(1, 2), 1, &[]);
    let parent = Parent { task: id(9, 9), key: ActKey::forward(0), attempt: 1, depth: 2, top: top.task.id };
    let input = Input { parent: Some(parent), ..(*child.task.input).clone() };
    child.task = Task { input: input.into(), ..(*child.task).clone() }.into();
    write(&sink, child.run(1));
    assert_eq!(child.task.kept_for(), Some(top.task.id));
    let retention = Retention {
        tasks: Millis(1),
        logs: Millis(1),
        audit: Millis(1),
        keeps_unannounced: false,
        messages_until: None,
    };
    let sweep = || wait(sink.sweep(&retention, now(DAY), 1000)).unwrap();
    let is_there = || wait(sink.load(&[child.task.id])).unwrap()[0].is_some();
    sweep();
    assert!(is_there(), "the one above may be rolled back, and it with that");
    while !top.task.is_ended() {
        write(&sink, vec![top.succeed(2, None)]);
    }
    // A sweep goes on where the last one stopped.
    for _ in 0..3 {
        sweep();
    }
    assert!(!is_there());
}

#[test]
fn ended_tasks_go_with_all_their_rows_and_nothing_else_does() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 3, OnFailure::Hold);
    write(&sink, vec![flow_change(&flow)]);

    // Ended long ago, with a key, an alarm that is over, and log lines.
    let mut old = Story::new(&flow, id(0, 1), 0, &[]);
    let mut changes = old.run(0);
    if let Change::Task(change) = &mut changes[0] {
        change.submit_key = Some(SubmitKey { scope: [1; 32], fingerprint: [2; 32] });
    }
    let alarm = AlarmId("held".into());
    let raise = AlarmCommand::Raise {
        kind: StuckKind::Held.into(),
        task: old.task.id,
        step: None,
        message: "look".into(),
    };
    let raised = Alarm::apply(None, &alarm, &raise, at(0)).unwrap().unwrap();
    let over = Alarm::apply(Some(&raised), &alarm, &AlarmCommand::Resolve { by: None }, at(0)).unwrap();
    changes.push(Change::Alarm(AlarmChange { before: 0, alarm: over, consumes: None }));
    changes.push(log(old.task.id, 2 * DAY));
    write(&sink, changes);
    // Began long ago and ended just now; and still active.
    let mut slow = Story::new(&flow, id(1, 2), 1, &[]);
    write(&sink, vec![slow.accept(1)]);
    let mut active = Story::new(&flow, id(2, 3), 2, &[]);
    write(&sink, vec![active.accept(2)]);
    while !slow.task.is_ended() {
        write(&sink, vec![slow.succeed(9 * DAY, None)]);
    }
    write(&sink, vec![log(slow.task.id, 9 * DAY)]);

    let retention = Retention {
        tasks: Millis::from_secs(24 * 3600),
        logs: Millis::from_secs(30 * 24 * 3600),
        audit: Millis::from_secs(30 * 24 * 3600),
        keeps_unannounced: false,
        messages_until: None,
    };
    assert_eq!(wait(sink.sweep(&retention, now(DAY / 2), 1000)).unwrap(), 0);
    // In steps of at most three rows, however many belong to one task.
    let mut gone = 0;
    for _ in 0..40 {
        let some = wait(sink.sweep(&retention, now(10 * DAY - HOUR), 3)).unwrap();
        assert!(some <= 3, "{some} rows at once");
        gone += some;
        if some == 0 {
            break;
        }
    }
    // The task, 4 rows of history, 10 log lines, the key.
    assert_eq!(gone, 16);
    assert_eq!(
        counts(&place),
        [
            ("task", 2),
            ("final", 1),
            ("history", 5),
            ("submit_key", 0),
            ("alarm", 0),
            ("log WHERE task <> zeroblob(16)", 10),
            ("active", 1),
            ("remains", 0)
        ]
    );
    assert!(wait(sink.load(&[old.task.id])).unwrap()[0].is_none());
    assert!(wait(sink.load(&[slow.task.id])).unwrap()[0].is_some());
    assert_eq!(wait(sink.events(active.task.id, 0, 10)).unwrap(), active.stored_events());
}

#[test]
fn a_key_is_kept_a_day_though_its_task_goes_sooner() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 1, OnFailure::Hold);
    write(&sink, vec![flow_change(&flow)]);
    let key = SubmitKey { scope: [1; 32], fingerprint: [2; 32] };
    let mut story = Story::new(&flow, id(0, 2), 0, &[]);
    let Change::Task(change) = story.accept(0) else { unreachable!() };
    write(&sink, vec![Change::Task(Box::new(TaskChange { submit_key: Some(key.clone()), ..*change }))]);
    write(&sink, vec![story.succeed(0, None)]);
    let retention = Retention {
        tasks: Millis::from_secs(60),
        logs: Millis::from_secs(60),
        audit: Millis::from_secs(60),
        keeps_unannounced: false,
        messages_until: None,
    };
    let sweep = |ms| wait(sink.sweep(&retention, now(ms), 100)).unwrap();
    assert_eq!(sweep(HOUR), 3);
    assert!(wait(sink.load(&[story.task.id])).unwrap()[0].is_none());
    assert_eq!(sweep(DAY - 1), 0);
    assert_eq!(wait(sink.submit_keys(&[[1; 32]])).unwrap(), [Some((story.task.id, key))]);
    assert_eq!(sweep(DAY), 1);
    assert!(wait(sink.submit_keys(&[[1; 32]])).unwrap()[0].is_none());
    assert!(counts(&place).iter().all(|(_, count)| *count == 0));
}

#[test]
fn log_lines_have_a_retention_of_their_own() {
    let place = Place::new();
    let (sink, _) = place.open();
    write(&sink, vec![log(id(1, 1), 0), log(id(1, 1), DAY), log(id(2, 2), 2 * DAY)]);
    let retention = Retention {
        tasks: Millis::from_secs(3600),
        logs: Millis::from_secs(24 * 3600),
        audit: Millis::from_secs(24 * 3600),
        keeps_unannounced: false,
        messages_until: None,
    };
    assert_eq!(wait(sink.sweep(&retention, now(2 * DAY + HOUR), 15)).unwrap(), 15);
    assert_eq!(wait(sink.sweep(&retention, now(2 * DAY + HOUR), 15)).unwrap(), 5);
    assert_eq!(wait(sink.sweep(&retention, now(2 * DAY + HOUR), 15)).unwrap(), 0);
    assert_eq!(wait(sink.logs(id(2, 2), 0, 100)).unwrap().len(), 10);
}

#[test]
fn tasks_of_one_status_do_not_hide_behind_one_that_stays() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 1, OnFailure::Hold);
    write(&sink, vec![flow_change(&flow)]);
    // More than are looked at in one go, all old but not over, then one that is.
    let mut stories: Vec<_> = (0..1_500).map(|n| Story::new(&flow, id(n, 1), n, &[])).collect();
    write(&sink, stories.iter_mut().map(|story| story.accept(0)).collect());
    let late: Vec<_> = stories.iter_mut().map(|story| story.succeed(5 * DAY, None)).collect();
    let mut over = Story::new(&flow, id(2_000, 1), 2_000, &[]);
    write(&sink, over.run(2_000));
    write(&sink, late);
    let retention = Retention {
        tasks: Millis::from_secs(24 * 3600),
        logs: Millis::from_secs(24 * 3600),
        audit: Millis::from_secs(24 * 3600),
        keeps_unannounced: false,
        messages_until: None,
    };
    let gone: u64 = (0..3).map(|_| wait(sink.sweep(&retention, now(3 * DAY), 100)).unwrap()).sum();
    assert!(gone > 0);
    assert!(wait(sink.load(&[over.task.id])).unwrap()[0].is_none());
    assert_eq!(counts(&place)[1], ("final", 1_500));
}
