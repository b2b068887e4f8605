//! Everything that is written comes back as it was, at once and after the file was closed and opened.

use windlass_core::{
    ActKey, Actor, Alarm, AlarmCommand, AlarmId, Command, Json, Message, OnFailure, StuckKind, Timestamp,
};
use windlass_store::{
    AlarmChange, Change, LogLine, QueueChange, QueuePause, SubmitKey, TaskChange,
    resident::{Room, RowSink},
};

use crate::story::{Place, Story, at, flow, flow_change, id, name, tasks, wait, write};

#[test]
fn active_tasks_come_back_with_their_results() {
    let place = Place::new();
    let (sink, recovered) = place.open();
    assert!(recovered.tasks.is_empty() && recovered.flows.is_empty());
    let flow = flow("line", 3, OnFailure::Rollback);
    let mut fresh = Story::new(&flow, id(1, 1), 1, &[("team", "blue")]);
    let mut halfway = Story::new(&flow, id(2, 2), 2, &[]);
    let mut back = Story::new(&flow, id(3, 3), 3, &[]);
    write(&sink, vec![flow_change(&flow), fresh.accept(1), halfway.accept(2), back.accept(3)]);
    // Several changes of one task in one batch, and in several.
    write(
        &sink,
        vec![
            halfway.succeed(4, Some(r#"{"one":  1e400}"#)),
            halfway.succeed(5, None),
            back.succeed(5, Some(r#"{"a":1}"#)),
        ],
    );
    write(&sink, vec![back.fail(6)]);
    write(&sink, vec![back.succeed(7, Some(r#"{"undone":true}"#))]);
    sink.close();

    let (_sink, recovered) = place.open();
    assert_eq!(recovered.latest_at, at(7));
    assert_eq!(recovered.flows.len(), 1);
    assert_eq!(recovered.flows[0].flow, flow);
    let tasks = tasks(&recovered);
    assert_eq!(tasks.len(), 3);
    for story in [&fresh, &halfway, &back] {
        assert_eq!(tasks[&story.task.id], *story.task);
    }
    assert_eq!(
        tasks[&halfway.task.id].state.steps[0].forward.result.as_ref().unwrap().as_str(),
        r#"{"one":  1e400}"#
    );
}

#[test]
fn an_ended_task_comes_back_by_id_and_not_as_active() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 2, OnFailure::Rollback);
    // One that passes through several transactions, one that begins and ends in a single one.
    let mut long = Story::new(&flow, id(1, 1), 1, &[]);
    write(&sink, vec![flow_change(&flow), long.accept(1)]);
    write(&sink, vec![long.succeed(2, Some(r#"{"a":1}"#))]);
    write(&sink, vec![long.succeed(3, None)]);
    let mut short = Story::new(&flow, id(2, 2), 2, &[]);
    write(&sink, short.run(4));

    let check = |sink: &windlass_stores::sqlite::SqliteSink| {
        let rows = wait(sink.load(&[short.task.id, id(9, 9), long.task.id])).unwrap();
        let task = |index: usize| {
            let row: windlass_store::resident::TaskRow = rows[index].clone().unwrap().unwrap();
            row.into_task(|_, _| Some(flow.clone())).unwrap()
        };
        assert_eq!(task(0), *short.task);
        assert!(rows[1].is_none());
        assert_eq!(task(2), *long.task);
    };
    check(&sink);
    sink.close();
    let (sink, recovered) = place.open();
    assert!(recovered.tasks.is_empty());
    check(&sink);
}

#[test]
fn events_are_numbered_and_read_from_anywhere() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 3, OnFailure::Rollback);
    let mut story = Story::new(&flow, id(1, 1), 1, &[]);
    write(&sink, vec![flow_change(&flow), story.accept(1)]);
    write(&sink, vec![story.succeed(2, Some(r#"{"a":1}"#)), story.succeed(3, None)]);
    let events = |sink: &windlass_stores::sqlite::SqliteSink, after, limit| {
        wait(sink.events(id(1, 1), after, limit)).unwrap()
    };
    assert_eq!(events(&sink, 0, 100), story.stored_events());
    write(&sink, vec![story.fail(4)]);
    let all = story.stored_events();
    for after in 0..=all.len() {
        for limit in [0, 1, 2, 100] {
            let expected: Vec<_> = all.iter().skip(after).take(limit).cloned().collect();
            assert_eq!(events(&sink, after as u64, limit), expected, "after {after}, at most {limit}");
        }
    }
    assert!(wait(sink.events(id(5, 5), 0, 10)).unwrap().is_empty());
    // The same once it has ended, and once the file was opened again.
    while !story.task.is_ended() {
        write(&sink, vec![story.succeed(5, None)]);
    }
    assert_eq!(events(&sink, 0, 100), story.stored_events());
    sink.close();
    let (sink, _) = place.open();
    assert_eq!(events(&sink, 0, 100), story.stored_events());
}

#[test]
fn a_result_that_came_before_another_try_does_not_count() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("held", 1, OnFailure::Hold);
    let mut story = Story::new(&flow, id(1, 1), 1, &[]);
    let mut changes = vec![flow_change(&flow), story.accept(1), story.fail(2)];
    let resolve = |story: &mut Story, resolution, ms| {
        story.apply(&Command::Resolve { step: 0, resolution, by: None }, ms)
    };
    changes.push(resolve(&mut story, windlass_core::Resolution::Retry(None), 3));
    changes.push(story.succeed(4, Some(r#"{"second":true}"#)));
    // A result for an act that did not succeed, as a task that was tried again would have it.
    if let Change::Task(change) = &mut changes[2] {
        change.results.push((ActKey::forward(0), Json::parse(r#"{"first":true}"#).unwrap()));
    }
    write(&sink, changes);
    let rows = wait(sink.load(&[id(1, 1)])).unwrap();
    let result = rows[0].as_ref().unwrap().as_ref().unwrap().state.steps[0].forward.result.clone();
    assert_eq!(result.unwrap().as_str(), r#"{"second":true}"#);
}

#[test]
fn idempotency_keys_lead_to_their_tasks() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("line", 1, OnFailure::Rollback);
    let key = SubmitKey { scope: [7; 32], fingerprint: [8; 32] };
    let mut story = Story::new(&flow, id(1, 1), 1, &[]);
    let Change::Task(change) = story.accept(1) else { unreachable!() };
    write(
        &sink,
        vec![
            flow_change(&flow),
            Change::Task(Box::new(TaskChange { submit_key: Some(key.clone()), ..*change })),
        ],
    );
    sink.close();
    let (sink, _) = place.open();
    let found = wait(sink.submit_keys(&[[1; 32], [7; 32]])).unwrap();
    assert_eq!(found, [None, Some((id(1, 1), key))]);
}

#[test]
fn messages_stay_until_they_are_consumed_by_an_alarm() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("held", 1, OnFailure::Hold);
    let mut story = Story::new(&flow, id(1, 1), 1, &[]);
    let changes = vec![flow_change(&flow), story.accept(1), story.fail(2)];
    let Change::Task(failed) = &changes[2] else { unreachable!() };
    let envelope = failed.messages[0].clone();
    write(&sink, changes);
    sink.close();

    let (sink, recovered) = place.open();
    assert_eq!(recovered.messages, std::slice::from_ref(&envelope));
    let Message::Alarm { id: alarm_id, command } = envelope.message else { unreachable!() };
    let raised = Alarm::apply(None, &alarm_id, &command, at(3)).unwrap();
    write(
        &sink,
        vec![Change::Alarm(AlarmChange { before: 0, alarm: raised.clone(), consumes: Some(envelope.id) })],
    );
    sink.close();

    let (sink, recovered) = place.open();
    assert!(recovered.messages.is_empty());
    let stored = wait(sink.alarm(&alarm_id)).unwrap().unwrap();
    assert_eq!((Some(&stored.alarm), stored.version), (raised.as_ref(), 1));
    assert_eq!(wait(sink.alarm(&AlarmId("none".into()))).unwrap(), None);
}

#[test]
fn alarms_are_listed_newest_first_and_resolved_ones_only_on_demand() {
    let place = Place::new();
    let (sink, _) = place.open();
    let raise = |n: i64| {
        let id = AlarmId(format!("alarm-{n}").into());
        let command = AlarmCommand::Raise {
            kind: StuckKind::Held.into(),
            task: crate::story::id(n, 1),
            step: Some(name("step-0")),
            message: "look".into(),
        };
        Alarm::apply(None, &id, &command, at(n)).unwrap().unwrap()
    };
    let change = |before, alarm| Change::Alarm(AlarmChange { before, alarm: Some(alarm), consumes: None });
    write(&sink, (1..=4).map(|n| change(0, raise(n))).collect());
    let by = Some(Actor { name: "ops".into(), claimed: true });
    let third = raise(3);
    let resolved =
        Alarm::apply(Some(&third), &third.id, &AlarmCommand::Resolve { by }, at(9)).unwrap().unwrap();
    write(&sink, vec![change(1, resolved.clone())]);

    let ids = |all, limit| {
        let alarms = wait(sink.alarms(all, limit)).unwrap();
        alarms.into_iter().map(|alarm| alarm.unwrap().id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(false, 10), ["alarm-4", "alarm-2", "alarm-1"]);
    assert_eq!(ids(true, 10), ["alarm-4", "alarm-3", "alarm-2", "alarm-1"]);
    assert_eq!(ids(true, 2), ["alarm-4", "alarm-3"]);
    let stored = wait(sink.alarm(&third.id)).unwrap().unwrap();
    assert_eq!((stored.alarm, stored.version), (resolved, 2));
}

#[test]
fn paused_queues_come_back_until_they_go_on() {
    let place = Place::new();
    let (sink, _) = place.open();
    let pause = |queue: &str, by: Option<Actor>| QueueChange {
        name: name(queue),
        paused: Some(QueuePause { at: at(1), by }),
    };
    let ops = Some(Actor { name: "ops".into(), claimed: false });
    let (one, two, three) = (pause("one", ops), pause("two", None), pause("three", None));
    let resume = QueueChange { name: name("two"), paused: None };
    let changes = [one.clone(), two, three.clone(), resume];
    write(&sink, changes.into_iter().map(Change::Queue).collect());
    sink.close();
    let (_sink, mut recovered) = place.open();
    recovered.queues.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(recovered.queues, [one, three]);
}

#[test]
fn log_lines_come_back_in_order() {
    let place = Place::new();
    let (sink, _) = place.open();
    let line = |n: u32, task| LogLine {
        task,
        key: ActKey::rollback(3),
        attempt: n,
        at: at(i64::from(n)),
        line: format!("line {n} \u{1f980}").into(),
    };
    let lines: Vec<_> = (1..=5).map(|n| line(n, id(1, 1))).collect();
    write(&sink, vec![Change::Logs(lines[..3].to_vec()), Change::Logs(vec![line(9, id(2, 2))])]);
    write(&sink, vec![Change::Logs(lines[3..].to_vec())]);
    sink.close();
    let (sink, recovered) = place.open();
    assert_eq!(recovered.latest_at, at(9));
    let numbered = wait(sink.logs(id(1, 1), 0, 100)).unwrap();
    assert_eq!(numbered.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>(), lines);
    assert_eq!(wait(sink.logs(id(1, 1), numbered[0].0, 2)).unwrap(), numbered[1..3]);
    assert_eq!(wait(sink.logs(id(1, 1), numbered[4].0, 2)).unwrap(), []);
}

#[test]
fn each_opening_begins_a_new_epoch_and_the_token_key_stays() {
    let place = Place::new();
    let (sink, first) = place.open();
    let again = wait(sink.recover(Room::ENDLESS)).unwrap();
    sink.close();
    let (_sink, third) = place.open();
    assert_eq!((first.epoch, again.epoch, third.epoch), (1, 1, 2));
    assert_eq!((first.token_key, first.token_key), (again.token_key, third.token_key));
    assert_ne!(first.token_key, [0; 32]);
    assert_eq!(first.latest_at, Timestamp(0));
    let other = Place::new().open().1;
    assert_ne!(first.token_key, other.token_key);
}
