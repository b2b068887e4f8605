//! Lists of tasks: newest first, filtered, page by page.

use windlass_core::{Command, During, Flow, Input, Json, Millis, OnFailure, TaskId, TaskStatus};
use windlass_store::{Outcome, ParamFilter, SubmitKey, TaskChange, TaskQuery};

use crate::{World, history::line, storing::unique, topic};

topic![
    the_newest_come_first_to_the_end,
    pages_leave_no_gap_and_repeat_nothing,
    pages_go_on_when_tasks_are_new_or_end_meanwhile,
    tasks_are_found_by_status,
    tasks_are_found_by_flow_and_labels,
    tasks_are_found_by_unique_key_and_parameters,
    tasks_are_found_by_idempotency_key,
    parameters_that_nobody_looks_at_may_be_left_out,
    tasks_are_found_by_time,
    filters_are_met_all_at_once,
];

/// All pages of `query`, and the number of pages.
async fn pages(world: &mut World, mut query: TaskQuery) -> (Vec<TaskId>, usize) {
    let (mut found, mut count) = (Vec::new(), 0);
    loop {
        let page = world.store().tasks(&query).await.expect("listing tasks succeeds");
        assert!(page.items.len() <= query.limit, "{} of {}", page.items.len(), query.limit);
        found.extend(page.items.iter().map(|loaded| loaded.task.id));
        count += 1;
        match page.next {
            Some(next) => {
                assert!(query.before.is_none_or(|before| next < before), "a cursor goes on");
                query.before = Some(next);
            }
            None => return (found, count),
        }
    }
}

async fn all(world: &mut World, query: TaskQuery) -> Vec<TaskId> {
    pages(world, query).await.0
}

fn any(limit: usize) -> TaskQuery {
    TaskQuery { limit, ..TaskQuery::default() }
}

/// `count` tasks, every third of them ended; newest first.
async fn some_tasks(world: &mut World, count: usize) -> Vec<TaskId> {
    let flow = world.add_flow(line("flow", 2)).await;
    let mut tasks = Vec::new();
    for number in 0..count {
        let id = world.submit(&flow).await;
        if number % 3 == 1 {
            world.apply(id, Command::Cancel { by: None }).await;
        }
        tasks.push(id);
        world.pass(Millis(10));
    }
    tasks.reverse();
    tasks
}

async fn the_newest_come_first_to_the_end(mut world: World) {
    assert_eq!(pages(&mut world, any(10)).await, (Vec::new(), 1));
    let tasks = some_tasks(&mut world, 12).await;
    assert_eq!(all(&mut world, any(1000)).await, tasks);
    let page = world.store().tasks(&any(4)).await.expect("listing tasks succeeds");
    let first: Vec<TaskId> = page.items.iter().map(|loaded| loaded.task.id).collect();
    assert_eq!(first, tasks[..4]);
    let query = TaskQuery { before: Some(tasks[6]), ..any(1000) };
    assert_eq!(all(&mut world, query).await, tasks[7..]);
}

async fn pages_leave_no_gap_and_repeat_nothing(mut world: World) {
    let tasks = some_tasks(&mut world, 23).await;
    for limit in [1, 2, 3, 5, 7, 22, 23, 24] {
        assert_eq!(all(&mut world, any(limit)).await, tasks, "pages of {limit}");
        let statuses = vec![TaskStatus::Cancelled];
        let ended: Vec<TaskId> = tasks.iter().rev().skip(1).step_by(3).copied().collect::<Vec<_>>();
        let found = all(&mut world, TaskQuery { statuses, ..any(limit) }).await;
        assert_eq!(found, ended.into_iter().rev().collect::<Vec<_>>(), "pages of {limit} of the ended");
        let statuses = vec![TaskStatus::Pending];
        let found = all(&mut world, TaskQuery { statuses, ..any(limit) }).await;
        assert_eq!(found.len(), 15, "pages of {limit} of the waiting");
    }
}

async fn pages_go_on_when_tasks_are_new_or_end_meanwhile(mut world: World) {
    let tasks = some_tasks(&mut world, 12).await;
    let mut found = Vec::new();
    let mut query = any(3);
    let flow =
        world.store().flow("flow", None).await.expect("reading flows succeeds").expect("it is there").flow;
    loop {
        let page = world.store().tasks(&query).await.expect("listing tasks succeeds");
        found.extend(page.items.iter().map(|loaded| loaded.task.id));
        world.submit(&flow).await;
        // One task that is not read yet ends, and one that was read.
        for task in [tasks[9], tasks[0], tasks[5]] {
            if !world.load(task).await.task.is_ended() {
                world.apply(task, Command::Cancel { by: None }).await;
                break;
            }
        }
        match page.next {
            Some(next) => query.before = Some(next),
            None => break,
        }
    }
    assert_eq!(found, tasks);
}

async fn tasks_are_found_by_status(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let hold = world.add_flow(Flow { on_failure: OnFailure::Hold, ..line("hold", 1) }).await;
    let mut bare = line("bare", 1);
    bare.steps[0].rollback = None;
    let bare = world.add_flow(bare).await;
    let session = world.session(1).await;
    let at = world.now.wall + Millis::from_secs(3600);
    let scheduled = world.submit_with(&flow, |input| input.at = Some(at)).await;
    let mut claimed = Vec::new();
    for flow in [&flow, &flow, &flow, &flow, &flow, &hold, &bare] {
        world.submit(flow).await;
        claimed.push(world.claim_one(session).await);
    }
    let ids: Vec<TaskId> = claimed.iter().map(|claimed| claimed.id.task).collect();
    world.succeed(&claimed[1], None).await;
    world.fail(&claimed[2]).await;
    world.fail(&claimed[3]).await;
    let undo = world.claim(session, 2).await.into_iter().find(|undo| undo.id.task == ids[3]);
    world.succeed(&undo.expect("its rollback is ready"), None).await;
    world.apply(ids[4], Command::Pause { by: None }).await;
    world.fail(&claimed[5]).await;
    world.fail(&claimed[6]).await;
    let pending = world.submit(&flow).await;
    let paused = world.submit(&flow).await;
    world.apply(paused, Command::Pause { by: None }).await;
    let cancelled = world.submit(&flow).await;
    world.apply(cancelled, Command::Cancel { by: None }).await;
    let expected = [
        (TaskStatus::Scheduled, scheduled),
        (TaskStatus::Pending, pending),
        (TaskStatus::Running, ids[0]),
        (TaskStatus::Pausing, ids[4]),
        (TaskStatus::Paused, paused),
        (TaskStatus::RollingBack, ids[2]),
        (TaskStatus::Succeeded, ids[1]),
        (TaskStatus::RolledBack, ids[3]),
        (TaskStatus::Failed, ids[6]),
        (TaskStatus::Cancelled, cancelled),
        (TaskStatus::Stuck, ids[5]),
    ];
    for (status, id) in expected {
        let found = all(&mut world, TaskQuery { statuses: vec![status], ..any(2) }).await;
        assert_eq!(found, [id], "{status:?}");
    }
    let statuses = vec![TaskStatus::Succeeded, TaskStatus::Stuck, TaskStatus::Pending];
    assert_eq!(all(&mut world, TaskQuery { statuses, ..any(2) }).await, [pending, ids[5], ids[1]]);
}

async fn tasks_are_found_by_flow_and_labels(mut world: World) {
    let one = world.add_flow(line("one", 1)).await;
    let other = world.add_flow(line("other", 1)).await;
    let mut tasks = Vec::new();
    for number in 0..8 {
        let flow = if number % 2 == 0 { &one } else { &other };
        let set = |input: &mut windlass_core::Input| {
            if number < 6 {
                input.labels.insert("customer".to_owned(), format!("c{}", number % 3));
            }
            if number >= 3 {
                input.labels.insert("tier".to_owned(), "gold".to_owned());
            }
        };
        let id = world.submit_with(flow, set).await;
        if number % 4 == 3 {
            world.apply(id, Command::Cancel { by: None }).await;
        }
        tasks.push(id);
    }
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let flow = Some(other.name.clone());
    let found = all(&mut world, TaskQuery { flow, ..any(3) }).await;
    assert_eq!(found, [tasks[7], tasks[5], tasks[3], tasks[1]]);
    let found = all(&mut world, TaskQuery { labels: labels(&[("customer", "c0")]), ..any(3) }).await;
    assert_eq!(found, [tasks[3], tasks[0]]);
    let both = labels(&[("customer", "c0"), ("tier", "gold")]);
    assert_eq!(all(&mut world, TaskQuery { labels: both, ..any(3) }).await, [tasks[3]]);
    let none = labels(&[("customer", "c9")]);
    assert_eq!(all(&mut world, TaskQuery { labels: none, ..any(3) }).await, []);
}

/// Tasks, some active and some ended, with these parameters and unique keys.
async fn tasks_with(world: &mut World, inputs: &[(&str, &str)]) -> Vec<TaskId> {
    let flow = unique::flow(world, During::Finished(Millis(0))).await;
    let mut tasks = Vec::new();
    for (number, (params, key)) in inputs.iter().enumerate() {
        let set = |input: &mut Input| {
            input.params = Json::parse(params).expect("an object");
            input.unique = Some((*key).into());
        };
        let id = world.submit_with(&flow, set).await;
        if number % 2 == 0 {
            world.apply(id, Command::Cancel { by: None }).await;
        }
        world.pass(Millis(10));
        tasks.push(id);
    }
    tasks
}

async fn tasks_are_found_by_unique_key_and_parameters(mut world: World) {
    let inputs = [
        (r#"{"size":1,"spec":{"disk":"ssd"}}"#, "a"),
        (r#"{"size":2,"spec":{"disk":"ssd"}}"#, "b"),
        (r#"{"size":2.0,"spec":{"disk":"tape"}}"#, "c"),
        (r#"{"size":"2"}"#, "a"),
    ];
    let tasks = tasks_with(&mut world, &inputs).await;
    let unique = Some("a".into());
    assert_eq!(all(&mut world, TaskQuery { unique, ..any(1) }).await, [tasks[3], tasks[0]]);
    let param = |path, value| ParamFilter::new(path, value).expect("a path");
    let cases = [
        (vec![param("size", "2")], vec![tasks[2], tasks[1]]),
        (vec![param("/spec/disk", "ssd")], vec![tasks[1], tasks[0]]),
        (vec![param("size", "2"), param("spec.disk", "ssd")], vec![tasks[1]]),
        (vec![param("size", "\"2\"")], vec![tasks[3]]),
        (vec![param("spec.none", "null")], vec![]),
    ];
    for (params, expected) in cases {
        for brief in [false, true] {
            let query = TaskQuery { params: params.clone(), brief, ..any(1) };
            assert_eq!(all(&mut world, query).await, expected, "{params:?}");
        }
    }
}

async fn tasks_are_found_by_idempotency_key(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut tasks = Vec::new();
    for scope in [1, 2, 3] {
        let key = SubmitKey { scope: [scope; 32], fingerprint: [0; 32] };
        let change = TaskChange { submit_key: Some(key), ..world.new_task(&flow, |_| {}) };
        tasks.push(change.task.id);
        assert_eq!(world.commit_one(change).await, Outcome::Committed);
        world.pass(Millis(10));
    }
    world.submit(&flow).await;
    world.apply(tasks[2], Command::Cancel { by: None }).await;
    let of = |scopes: &[u8]| TaskQuery {
        scopes: Some(scopes.iter().map(|scope| [*scope; 32]).collect()),
        ..any(1)
    };
    assert_eq!(all(&mut world, of(&[2])).await, [tasks[1]]);
    assert_eq!(all(&mut world, of(&[1, 3, 9])).await, [tasks[2], tasks[0]]);
    assert_eq!(all(&mut world, of(&[9])).await, []);
    assert_eq!(all(&mut world, of(&[])).await, []);
    let statuses = vec![TaskStatus::Cancelled];
    assert_eq!(all(&mut world, TaskQuery { statuses, ..of(&[1, 3]) }).await, [tasks[2]]);
}

async fn parameters_that_nobody_looks_at_may_be_left_out(mut world: World) {
    let tasks = tasks_with(&mut world, &[(r#"{"size":1}"#, "a"), (r#"{"size":2}"#, "b")]).await;
    let page =
        world.store().tasks(&TaskQuery { brief: true, ..any(9) }).await.expect("listing tasks succeeds");
    let ids: Vec<TaskId> = page.items.iter().map(|loaded| loaded.task.id).collect();
    assert_eq!(ids, [tasks[1], tasks[0]]);
    let page = world.store().tasks(&any(9)).await.expect("listing tasks succeeds");
    let params: Vec<&str> = page.items.iter().map(|loaded| loaded.task.input.params.as_str()).collect();
    assert_eq!(params, [r#"{"size":2}"#, r#"{"size":1}"#], "they are not lost by that");
}

async fn tasks_are_found_by_time(mut world: World) {
    let start = world.now.wall;
    let tasks = some_tasks(&mut world, 10).await;
    let at = |number: u64| Some(start + Millis(number * 10));
    let found = all(&mut world, TaskQuery { since: at(3), until: at(7), ..any(3) }).await;
    // Accepted at 3, 4, 5 and 6; the list is newest first.
    assert_eq!(found, tasks[3..7]);
    assert_eq!(all(&mut world, TaskQuery { since: at(9), ..any(3) }).await, tasks[..1]);
    assert_eq!(all(&mut world, TaskQuery { until: at(0), ..any(3) }).await, []);
}

async fn filters_are_met_all_at_once(mut world: World) {
    let start = world.now.wall;
    let tasks = some_tasks(&mut world, 10).await;
    let query = TaskQuery {
        statuses: vec![TaskStatus::Cancelled],
        flow: Some(crate::history::name("flow")),
        since: Some(start + Millis(20)),
        until: Some(start + Millis(60)),
        before: Some(tasks[1]),
        ..any(5)
    };
    // Number 4 of the tasks, the sixth from the end.
    assert_eq!(all(&mut world, query.clone()).await, [tasks[5]]);
    let flow = Some(crate::history::name("none"));
    assert_eq!(all(&mut world, TaskQuery { flow, ..query }).await, []);
}
