//! Lists of ended tasks: order, filters, pages.

use std::task::{Context, Poll, Waker};

use windlass_core::{Command, OnFailure, TaskId, TaskStatus};
use windlass_store::{SCAN_MAX, StoreError, TaskQuery, resident::RowSink};
use windlass_stores::sqlite::SqliteSink;

use crate::story::{Place, Story, at, flow, flow_change, id, name, wait, write};

/// Twelve tasks, a minute apart: in turn succeeded, rolled back, cancelled; of flows `even` and `odd`.
fn twelve(sink: &SqliteSink) -> Vec<TaskId> {
    let flows = [flow("even", 2, OnFailure::Rollback), flow("odd", 2, OnFailure::Rollback)];
    write(sink, flows.iter().map(flow_change).collect());
    let mut ids = Vec::new();
    for n in 0..12_u32 {
        let ms = i64::from(n) * 60_000;
        let kind = if n < 6 { "early" } else { "late" };
        let mut story = Story::new(&flows[n as usize % 2], id(ms, 1), ms, &[("kind", kind), ("all", "yes")]);
        let mut changes = vec![story.accept(ms)];
        match n % 3 {
            0 => changes.push(story.succeed(ms, None)),
            1 => changes.push(story.fail(ms)),
            _ => changes.push(story.apply(&Command::Cancel { by: None }, ms)),
        }
        while !story.task.is_ended() {
            changes.push(story.succeed(ms, None));
        }
        write(sink, changes);
        ids.push(story.task.id);
    }
    ids
}

fn query() -> TaskQuery {
    TaskQuery { limit: 100, ..TaskQuery::default() }
}

fn list(sink: &SqliteSink, query: &TaskQuery) -> Vec<TaskId> {
    let page = wait(sink.ended_page(query)).unwrap();
    assert_eq!(page.next, None);
    page.items.into_iter().map(|row| row.unwrap().id).collect()
}

fn picked(ids: &[TaskId], wanted: impl Fn(usize) -> bool) -> Vec<TaskId> {
    (0..ids.len()).rev().filter(|index| wanted(*index)).map(|index| ids[index]).collect()
}

#[test]
fn filters_pick_what_they_say_newest_first() {
    let place = Place::new();
    let (sink, _) = place.open();
    let ids = twelve(&sink);
    assert_eq!(list(&sink, &query()), picked(&ids, |_| true));
    let statuses = |statuses: &[TaskStatus]| TaskQuery { statuses: statuses.to_vec(), ..query() };
    assert_eq!(list(&sink, &statuses(&[TaskStatus::Succeeded])), picked(&ids, |n| n % 3 == 0));
    assert_eq!(
        list(&sink, &statuses(&[TaskStatus::Cancelled, TaskStatus::RolledBack, TaskStatus::Stuck])),
        picked(&ids, |n| n % 3 != 0)
    );
    assert_eq!(list(&sink, &statuses(&[TaskStatus::Running])), []);
    assert_eq!(list(&sink, &TaskQuery { flow: Some(name("odd")), ..query() }), picked(&ids, |n| n % 2 == 1));
    let label = |key: &str, value: &str| TaskQuery {
        labels: [(key.to_owned(), value.to_owned()), ("all".to_owned(), "yes".to_owned())].into(),
        ..query()
    };
    assert_eq!(list(&sink, &label("kind", "late")), picked(&ids, |n| n >= 6));
    assert_eq!(list(&sink, &label("kind", "never")), []);
    assert_eq!(list(&sink, &TaskQuery { since: Some(at(180_000)), ..query() }), picked(&ids, |n| n >= 3));
    assert_eq!(list(&sink, &TaskQuery { until: Some(at(180_000)), ..query() }), picked(&ids, |n| n < 3));
    assert_eq!(list(&sink, &TaskQuery { before: Some(ids[4]), ..query() }), picked(&ids, |n| n < 4));
    assert_eq!(
        list(
            &sink,
            &TaskQuery {
                statuses: vec![TaskStatus::Succeeded],
                flow: Some(name("odd")),
                since: Some(at(60_000)),
                until: Some(at(600_000)),
                ..query()
            }
        ),
        [ids[9], ids[3]]
    );
}

#[test]
fn a_flood_of_lists_keeps_no_commit_from_what_it_must_know() {
    let place = Place::new();
    let (sink, _) = place.open();
    let ids = twelve(&sink);
    let query = query();
    let mut lists: Vec<_> = (0..20_000).map(|_| sink.ended_page(&query)).collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut refused = 0;
    for list in &mut lists {
        let answer = list.as_mut().poll(&mut context);
        refused += usize::from(matches!(answer, Poll::Ready(Err(StoreError::Unavailable(_)))));
    }
    assert!(refused > 0, "more lists are asked for than may wait");
    assert_eq!(wait(sink.submit_keys(&[[1; 32]])), Ok(vec![None]));
    let alarm = windlass_core::AlarmId("none".into());
    assert!(matches!(wait(sink.alarm(&alarm)), Ok(None)));
    assert_eq!(wait(sink.load(&ids[..1])).unwrap().len(), 1);
}

#[test]
fn pages_meet_without_gap_or_overlap() {
    let place = Place::new();
    let (sink, _) = place.open();
    let ids = twelve(&sink);
    for limit in 1..=13 {
        let mut query = TaskQuery { limit, flow: Some(name("even")), ..query() };
        let mut seen = Vec::new();
        for _ in 0..20 {
            let page = wait(sink.ended_page(&query)).unwrap();
            assert!(page.items.len() <= limit);
            seen.extend(page.items.into_iter().map(|row| row.unwrap().id));
            query.before = page.next;
            if page.next.is_none() {
                break;
            }
        }
        assert_eq!(seen, picked(&ids, |n| n % 2 == 0), "pages of {limit}");
    }
}

#[test]
fn a_filter_that_nothing_meets_looks_at_a_bounded_number_of_tasks() {
    let place = Place::new();
    let (sink, _) = place.open();
    let flow = flow("one", 1, OnFailure::Rollback);
    write(&sink, vec![flow_change(&flow)]);
    let total = SCAN_MAX + 10;
    for chunk in (0..total).collect::<Vec<_>>().chunks(1_000) {
        let stories = chunk.iter().flat_map(|n| Story::new(&flow, id(*n as i64, 1), *n as i64, &[]).run(1));
        write(&sink, stories.collect());
    }
    let nothing = TaskQuery { flow: Some(name("other")), ..query() };
    let page = wait(sink.ended_page(&nothing)).unwrap();
    assert!(page.items.is_empty());
    // It stopped after the newest SCAN_MAX, and goes on from there to the end.
    assert_eq!(page.next, Some(id(10, 1)));
    let rest = wait(sink.ended_page(&TaskQuery { before: page.next, ..nothing })).unwrap();
    assert!(rest.items.is_empty() && rest.next.is_none());
}
