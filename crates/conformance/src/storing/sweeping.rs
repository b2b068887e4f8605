//! Retention: old rows are deleted in bounded pieces, and nothing else is.

use windlass_core::{ActKey, Command, Flow, Millis, TaskId};
use windlass_store::{Change, LogLine, Outcome, Retention, SubmitKey, TaskQuery};

use crate::{
    World,
    history::line,
    storing::messages::{deliver, held},
    topic,
};

topic![
    ended_tasks_go_with_all_that_is_theirs,
    tasks_are_kept_as_long_as_their_flow_says,
    flows_that_came_with_tasks_go_with_the_last_of_them,
    what_has_not_ended_stays,
    no_more_goes_at_once_than_asked_for,
    log_lines_go_before_their_task,
    submit_keys_are_kept_as_long_as_their_task,
    resolved_alarms_go_with_their_task,
    alarms_that_are_resolved_after_their_task_went_go_as_well,
    resolved_alarms_of_what_has_not_ended_stay,
    a_sweep_with_nothing_old_does_nothing,
];

const HOUR: Millis = Millis::from_secs(3600);
const DAY: Millis = Millis::from_secs(24 * 3600);
const RETENTION: Retention = Retention {
    tasks: Millis(DAY.0 * 3),
    logs: DAY,
    audit: DAY,
    keeps_unannounced: false,
    messages_until: None,
};

async fn sweep(world: &mut World, limit: usize) -> u64 {
    let now = world.now;
    world.store().sweep(&RETENTION, None, now, limit).await.expect("a sweep succeeds")
}

/// Sweeps until nothing is left to sweep.
async fn sweep_all(world: &mut World) {
    for _ in 0..10_000 {
        if sweep(world, 100).await == 0 {
            return;
        }
    }
    panic!("a sweep never ends");
}

async fn end(world: &mut World, id: TaskId) {
    assert!(world.apply(id, Command::Cancel { by: None }).await.is_ended());
}

async fn log(world: &mut World, task: TaskId, lines: usize) {
    let line = LogLine { task, key: ActKey::forward(0), attempt: 1, at: world.now.wall, line: "line".into() };
    assert_eq!(world.commit_one(Change::Logs(vec![line; lines])).await, Outcome::Committed);
}

async fn lines(world: &mut World, task: TaskId) -> usize {
    world.store().logs(task, 0, 1000).await.expect("reading logs succeeds").len()
}

async fn ended_tasks_go_with_all_that_is_theirs(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let old = world.submit(&flow).await;
    end(&mut world, old).await;
    world.pass(HOUR);
    let young = world.submit(&flow).await;
    end(&mut world, young).await;
    world.pass(Millis(RETENTION.tasks.0 - HOUR.0 - 1));
    log(&mut world, old, 3).await;
    log(&mut world, young, 2).await;
    sweep_all(&mut world).await;
    assert!(world.find(old).await.is_some(), "a moment too early");
    world.pass(Millis(1));
    sweep_all(&mut world).await;
    assert!(world.find(old).await.is_none());
    let events = world.store().events(old, 0, 10).await.expect("reading events succeeds");
    assert_eq!((events.len(), lines(&mut world, old).await), (0, 0));
    assert!(world.find(young).await.is_some());
    assert_eq!(lines(&mut world, young).await, 2);
    let query = TaskQuery { limit: 10, ..TaskQuery::default() };
    let page = world.store().tasks(&query).await.expect("listing tasks succeeds");
    assert_eq!(page.items.iter().map(|loaded| loaded.task.id).collect::<Vec<_>>(), [young]);
}

async fn tasks_are_kept_as_long_as_their_flow_says(mut world: World) {
    let kept = |name, version, retention| Flow { version, retention, ..line(name, 1) };
    let flows = [
        kept("brief", 1, Some(HOUR)),
        // The retention of a later version applies only to that version's tasks.
        kept("brief", 2, Some(Millis(DAY.0 * 5))),
        kept("brief", 3, None),
        kept("long", 1, Some(Millis(DAY.0 * 10))),
    ];
    let mut tasks = Vec::new();
    for flow in flows {
        let flow = world.add_flow(flow).await;
        let id = world.submit(&flow).await;
        end(&mut world, id).await;
        tasks.push(id);
    }
    let ended = world.now.wall;
    for (ms, left) in [
        (HOUR.0 - 1, &tasks[..]),
        (HOUR.0, &tasks[1..]),
        (RETENTION.tasks.0 - 1, &tasks[1..]),
        (RETENTION.tasks.0, &[tasks[1], tasks[3]]),
        (DAY.0 * 5, &tasks[3..]),
        (DAY.0 * 10 - 1, &tasks[3..]),
        (DAY.0 * 10, &[]),
    ] {
        world.pass(Millis(ms - (world.now.wall - ended).0));
        sweep_all(&mut world).await;
        let there = world.store().load(&tasks).await.expect("loading succeeds");
        let there: Vec<TaskId> = there.into_iter().flatten().map(|loaded| loaded.task.id).collect();
        assert_eq!(there, left, "after {ms} ms");
    }
}

async fn names(world: &mut World) -> Vec<String> {
    let flows = world.store().flows().await.expect("listing flows succeeds");
    flows.iter().map(|stored| stored.flow.name.to_string()).collect()
}

async fn flows_that_came_with_tasks_go_with_the_last_of_them(mut world: World) {
    const BROUGHT: &str = "adhoc-0123456789abcdef";
    let brought = world.add_flow(line(BROUGHT, 1)).await;
    for lasting in ["flow", "adhoc", "adhoc-mine"] {
        world.add_flow(line(lasting, 1)).await;
    }
    let (first, last) = (world.submit(&brought).await, world.submit(&brought).await);
    end(&mut world, first).await;
    world.pass(RETENTION.tasks);
    sweep_all(&mut world).await;
    assert!(world.find(first).await.is_none());
    assert_eq!(names(&mut world).await, ["adhoc", BROUGHT, "adhoc-mine", "flow"], "one has not ended");
    end(&mut world, last).await;
    world.pass(Millis(RETENTION.tasks.0 - 1));
    sweep_all(&mut world).await;
    assert_eq!(world.load(last).await.task.flow, brought);
    world.pass(Millis(1));
    sweep_all(&mut world).await;
    assert_eq!(names(&mut world).await, ["adhoc", "adhoc-mine", "flow"]);
    assert!(world.store().flow(BROUGHT, Some(1)).await.expect("reading flows succeeds").is_none());

    // A client that had the flow in use when it was deleted submits it again, as often as necessary.
    let (again, other) = (world.submit(&brought).await, world.submit(&brought).await);
    sweep_all(&mut world).await;
    for id in [again, other] {
        assert_eq!(world.load(id).await.task.flow, brought);
        end(&mut world, id).await;
        assert_eq!(world.load(id).await.task.flow, brought);
    }
    assert_eq!(names(&mut world).await, ["adhoc", BROUGHT, "adhoc-mine", "flow"]);
}

async fn what_has_not_ended_stays(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let waiting = world.submit(&flow).await;
    let paused = world.submit(&flow).await;
    world.apply(paused, Command::Pause { by: None }).await;
    world.pass(Millis(DAY.0 * 400));
    sweep_all(&mut world).await;
    assert!(world.find(waiting).await.is_some() && world.find(paused).await.is_some());
    let session = world.session(1).await;
    assert_eq!(world.claim_one(session).await.id.task, waiting);
}

async fn no_more_goes_at_once_than_asked_for(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut tasks = Vec::new();
    for _ in 0..9 {
        let id = world.submit(&flow).await;
        end(&mut world, id).await;
        tasks.push(id);
    }
    world.pass(RETENTION.tasks);
    assert_eq!(sweep(&mut world, 0).await, 0);
    let mut before = tasks.len();
    for _ in 0..100 {
        let swept = sweep(&mut world, 4).await;
        assert!(swept <= 4, "{swept} rows went");
        let there = world.store().load(&tasks).await.expect("loading succeeds");
        let there = there.into_iter().flatten().count();
        assert!(before - there <= 4, "{} tasks went", before - there);
        before = there;
        if swept == 0 {
            break;
        }
    }
    assert_eq!(before, 0);
}

async fn log_lines_go_before_their_task(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let (running, ended) = (world.submit(&flow).await, world.submit(&flow).await);
    log(&mut world, running, 3).await;
    log(&mut world, ended, 3).await;
    end(&mut world, ended).await;
    world.pass(HOUR);
    log(&mut world, running, 2).await;
    world.pass(Millis(DAY.0 - HOUR.0));
    sweep_all(&mut world).await;
    assert_eq!((lines(&mut world, running).await, lines(&mut world, ended).await), (2, 0));
    assert!(world.find(running).await.is_some() && world.find(ended).await.is_some());
}

async fn submit_keys_are_kept_as_long_as_their_task(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let key = Some(SubmitKey { scope: [3; 32], fingerprint: [4; 32] });
    let mut first = world.new_task(&flow, |_| {});
    first.submit_key.clone_from(&key);
    let id = first.task.id;
    assert_eq!(world.commit_one(first).await, Outcome::Committed);
    end(&mut world, id).await;
    let mut again = world.new_task(&flow, |_| {});
    again.submit_key.clone_from(&key);
    world.pass(Millis(RETENTION.tasks.0 - 1));
    sweep_all(&mut world).await;
    let taken = Outcome::KeyTaken { task: id, fingerprint: [4; 32] };
    assert_eq!(world.commit_one(again.clone()).await, taken);
    world.pass(Millis(1));
    sweep_all(&mut world).await;
    assert!(world.find(id).await.is_none());
    assert_eq!(world.commit_one(again).await, Outcome::Committed);
}

async fn resolved_alarms_go_with_their_task(mut world: World) {
    let (resolved, open) = (held(&mut world).await, held(&mut world).await);
    deliver(&mut world).await;
    // The alarm of one task is resolved in time, that of the other one only later.
    let skip = Command::Resolve { step: 0, resolution: windlass_core::Resolution::Skip, by: None };
    assert!(world.apply(resolved, skip.clone()).await.is_ended());
    deliver(&mut world).await;
    assert!(world.apply(open, skip).await.is_ended());
    world.pass(RETENTION.tasks);
    sweep_all(&mut world).await;
    assert_eq!(alarms(&mut world).await, [open]);
    assert!(world.find(open).await.is_none());
}

/// The tasks of all alarms, including resolved ones.
async fn alarms(world: &mut World) -> Vec<TaskId> {
    let alarms = world.store().alarms(true, 100).await.expect("listing alarms succeeds");
    alarms.iter().map(|alarm| alarm.task).collect()
}

async fn alarms_that_are_resolved_after_their_task_went_go_as_well(mut world: World) {
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(held(&mut world).await);
    }
    deliver(&mut world).await;
    for id in &tasks {
        let skip = Command::Resolve { step: 0, resolution: windlass_core::Resolution::Skip, by: None };
        assert!(world.apply(*id, skip).await.is_ended());
    }
    world.pass(RETENTION.tasks);
    sweep_all(&mut world).await;
    assert!(world.find(tasks[0]).await.is_none());
    assert_eq!(alarms(&mut world).await.len(), tasks.len(), "unresolved alarms stay");
    deliver(&mut world).await;
    for left in [3, 1, 0] {
        assert!(sweep(&mut world, 2).await <= 2);
        assert_eq!(alarms(&mut world).await.len(), left);
    }
    assert_eq!(sweep(&mut world, 2).await, 0);
}

async fn resolved_alarms_of_what_has_not_ended_stay(mut world: World) {
    let id = held(&mut world).await;
    deliver(&mut world).await;
    let retry = Command::Resolve { step: 0, resolution: windlass_core::Resolution::Retry(None), by: None };
    assert!(!world.apply(id, retry).await.is_ended());
    deliver(&mut world).await;
    world.pass(Millis(DAY.0 * 400));
    sweep_all(&mut world).await;
    assert_eq!(alarms(&mut world).await, [id]);
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert!(world.succeed(&claimed, None).await.is_ended());
    sweep_all(&mut world).await;
    assert_eq!(alarms(&mut world).await, [id], "it is kept as long as its task");
    world.pass(RETENTION.tasks);
    sweep_all(&mut world).await;
    assert_eq!(alarms(&mut world).await, []);
}

async fn a_sweep_with_nothing_old_does_nothing(mut world: World) {
    assert_eq!(sweep(&mut world, 100).await, 0);
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    end(&mut world, id).await;
    log(&mut world, id, 2).await;
    assert_eq!(sweep(&mut world, 100).await, 0);
    assert!(world.find(id).await.is_some());
}
