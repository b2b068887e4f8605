//! A server that keeps no parameters and results in memory: it reads few tasks at once, and all of them are done.

use std::{collections::BTreeSet, pin::pin, sync::Arc, task::Poll};

use futures_executor::block_on;
use windlass_core::{Command, Millis, Name, TaskId};
use windlass_engine::{Exchange, ReportStatus};
use windlass_store::{
    ClaimRequest, Limit, Now, SessionId, Starts, Store, TaskQuery,
    memory::MemorySink,
    resident::{BodyPolicy, Resident, RestPolicy},
};

use crate::{
    faulty_store::{FaultyStore, Verb},
    world::{WorkerInWorld, World, failed, flow, ok, ok_with},
};

/// More than are read at once, whatever their sizes.
const MANY: usize = 40;

/// Tasks that are read at once.
const AT_ONCE: usize = 16;

fn store(bodies: BodyPolicy) -> Arc<dyn Store> {
    store_over(&MemorySink::new([7; 32]), bodies)
}

fn store_over(sink: &MemorySink, bodies: BodyPolicy) -> Arc<dyn Store> {
    let rest = RestPolicy { bodies, ..RestPolicy::default() };
    Arc::new(block_on(Resident::open_with(Arc::new(sink.clone()), World::new().now(), rest)).unwrap())
}

fn submit_many(world: &World, bytes: usize) -> Vec<TaskId> {
    world.apply(flow("f", &["a", "b"], 0));
    let params = format!(r#"{{"text": "{}"}}"#, "x".repeat(bytes));
    let submit = |_| world.try_submit("f", &params, None).unwrap().loaded.task.id;
    (0..MANY).map(submit).collect()
}

/// A call of a worker that takes as many attempts as there are.
fn wide(worker: &mut WorkerInWorld<'_>) -> Exchange {
    let claim_requests = vec![ClaimRequest { module: Name::new("m").unwrap(), commands: None, free: 100 }];
    Exchange { claim_requests: Some(claim_requests), ..worker.call(0) }
}

/// How many commits it takes to pause all tasks by one call.
fn commits_to_pause(bodies: BodyPolicy) -> u64 {
    let world = World::over(store(bodies), 1);
    let tasks = submit_many(&world, 1 << 20);
    let before = world.engine.counts().batches();
    let replies = world.drive(world.engine.tell_all(&tasks, &Command::Pause { by: None })).unwrap();
    assert_eq!(replies.iter().filter(|reply| reply.is_ok()).count(), MANY);
    assert!(tasks.iter().all(|id| world.status(*id).starts_with("Paused")));
    world.engine.counts().batches() - before
}

#[test]
fn a_commit_loads_no_more_than_memory_is_to_hold() {
    assert_eq!(commits_to_pause(BodyPolicy::ALL), 1);
    assert_eq!(commits_to_pause(BodyPolicy::NONE), MANY.div_ceil(AT_ONCE) as u64);
}

#[test]
fn attempts_that_could_not_be_loaded_go_back_to_their_queue() {
    let faulty = FaultyStore::new(store(BodyPolicy::NONE));
    let world = World::over(faulty.clone(), 1);
    let tasks = submit_many(&world, 10);
    // All are claimed at once, and loaded in three parts.
    faulty.fail_after(Verb::Load, 1);
    let (mut first, mut second) = (world.worker(1), world.worker(2));
    let call = wide(&mut first);
    let failed = world.drive(world.engine.exchange(call, world.now()));
    faulty.fail(None);
    assert!(failed.is_err());
    world.serve();
    let call = wide(&mut second);
    let answer = world.drive(world.engine.exchange(call, world.now())).unwrap();
    let mut given: BTreeSet<TaskId> = answer.attempts.iter().map(|attempt| attempt.id.task).collect();
    assert_eq!(given.len(), MANY - AT_ONCE, "what was not loaded");
    let answer = world.drive(world.engine.exchange(wide(&mut first), world.now())).unwrap();
    given.extend(answer.attempts.iter().map(|attempt| attempt.id.task));
    assert!(tasks.iter().all(|id| given.contains(id)));
}

#[test]
fn a_task_is_done_with_all_it_was_given() {
    let world = World::over(store(BodyPolicy::NONE), 1);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.try_submit("f", r#"{"x": 1}"#, None).unwrap().loaded.task.id;
    let mut worker = world.worker(1);
    let a = worker.take();
    assert_eq!(a.params.as_str(), r#"{"x": 1}"#);
    worker.report(&a.token, ok_with(r#"{"y":2}"#));
    let b = worker.take();
    assert!(b.params.as_str().contains(r#""y":2"#), "{}", b.params.as_str());
    worker.report(&b.token, ok());
    let task = world.task(id);
    assert!(task.is_ended());
    assert_eq!(task.input.params.as_str(), r#"{"x": 1}"#);
    assert_eq!(task.state.steps[0].forward.result.as_ref().map(|result| result.as_str()), Some(r#"{"y":2}"#));
}

#[test]
fn a_task_whose_body_is_damaged_on_disk_leaves_queues_timers_and_limits() {
    let sink = MemorySink::new([7; 32]);
    let store = store_over(&sink, BodyPolicy::NONE);
    let world = World::over(store.clone(), 1);
    world.apply(flow("f", &["a"], 3));
    let limit = Limit {
        name: Name::new("hourly").unwrap(),
        queue: Name::new("m").unwrap(),
        command: None,
        per_key: false,
        running: Some(9),
        starts: Some(Starts { count: 9, per: Millis::from_secs(3600) }),
    };
    world.drive(world.engine.set_limit(limit)).unwrap();
    let (mut first, mut second) = (world.worker(1), world.worker(2));
    let claimed = world.submit("f");
    let running = first.take();
    let delayed = world.submit("f");
    let to_fail = second.take();
    second.report(&to_fail.token, failed("no"));
    let [ready, sound] = std::array::from_fn(|_| world.submit("f"));
    [claimed, delayed, ready].into_iter().for_each(|id| sink.damage(id));
    // The next ready one is found damaged, and the one behind it is handed out.
    assert_eq!(second.take().id.task, sound);
    assert_eq!(store.quarantine().tasks(), [ready]);
    // The timer of the one that is to be tried again fires once, and is gone.
    world.be_away(60_000);
    world.serve();
    assert_eq!(store.quarantine().tasks(), [delayed, ready]);
    assert_eq!(block_on(store.due(world.now(), 9)), Ok(Vec::new()));
    // What is reported of the third is refused, and nobody has it any more.
    let answer = first.report_call(&running.token, ok());
    assert_ne!(answer.reports[0].status, ReportStatus::Accepted);
    assert_eq!(store.quarantine().tasks(), [claimed, delayed, ready]);
    assert_eq!(block_on(store.held(SessionId(1))), Ok(Vec::new()));
    // All four were given to a worker, which may have begun them; the sound one is running.
    let limits = block_on(store.limits(world.now())).unwrap();
    assert_eq!((limits[0].started, limits[0].running), (4, 1));
    let statuses = TaskQuery { limit: 9, ..TaskQuery::default() };
    let listed = block_on(store.tasks(&statuses)).unwrap().items;
    assert_eq!(listed.iter().map(|loaded| loaded.task.id).collect::<Vec<_>>(), [sound]);
}

#[test]
fn bytes_are_counted_until_the_last_task_has_ended() {
    for bytes_max in [0, 150, u64::MAX] {
        let store = store(BodyPolicy { bytes_max, kept: 0 });
        let world = World::over(store.clone(), 1);
        world.apply(flow("f", &["a", "b"], 1));
        let submit = |n| world.try_submit("f", &format!(r#"{{"n": {n}, "pad": "{n:040}"}}"#), None).unwrap();
        let tasks: Vec<TaskId> = (0..5).map(|n| submit(n).loaded.task.id).collect();
        let one = world.task(tasks[0]).payload_bytes() as u64;
        let expected = (5 * one).min(bytes_max / one * one);
        assert_eq!(store.resident_bytes(), Some(expected), "up to {bytes_max}");
        let mut worker = world.worker(1);
        let first = worker.poll().attempts;
        assert_eq!(first.len(), tasks.len());
        worker.report(&first[0].token, failed("no"));
        first[1..].iter().for_each(|attempt| drop(worker.report(&attempt.token, ok_with(r#"{"y":2}"#))));
        world.be_away(60_000);
        for _ in 0..3 {
            world.serve();
            let next = worker.poll().attempts;
            next.iter().for_each(|attempt| drop(worker.report(&attempt.token, ok_with(r#"{"y":2}"#))));
        }
        assert!(tasks.iter().all(|id| world.task(*id).is_ended()));
        assert_eq!(store.resident_bytes(), Some(0), "up to {bytes_max}");
    }
}

/// Parameters are read between a claim and its answer. The connection of the call that hands out may close meanwhile.
#[test]
fn what_is_read_for_a_poll_by_a_call_that_goes_away_reaches_the_poll() {
    let store = store(BodyPolicy::NONE);
    let faulty = FaultyStore::new(store.clone());
    let world = World::over(faulty.clone(), 1);
    world.apply(flow("f", &["a"], 0));
    let mut worker = world.worker(1);
    let mut waits = pin!(worker.open_poll(10_000));
    assert!(world.turn(waits.as_mut()).is_pending());
    // The store has heard of a later time than the call knows.
    let now = world.now();
    let later = Now { wall: now.wall + Millis(50), mono: Millis(now.mono.0 + 50) };
    assert_eq!(block_on(store.due(later, 9)), Ok(Vec::new()));
    let id = World::over(store, 2).submit("f");
    faulty.hold_next(Verb::Load);
    {
        let mut calls = pin!(world.worker(2).open_poll(10_000));
        assert!(world.turn(calls.as_mut()).is_pending(), "parameters are read");
        assert_eq!(world.status(id), "Running: Running");
    }
    world.serve();
    let Poll::Ready(answer) = world.turn(waits.as_mut()) else { panic!("it is given at once") };
    let attempt = answer.unwrap().attempts.pop().expect("it is given at once");
    assert_eq!((attempt.id.task, attempt.id.attempt), (id, 1));
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}
