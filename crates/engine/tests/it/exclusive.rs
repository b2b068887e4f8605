//! Exclusive queues over the whole engine: one task at a time, in order, and none is lost.

use std::{
    future::Future as _,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
};

use windlass_core::{
    ActKey, Command, DATA_CODE, Doer, Flow, Input, Json, LockRef, Name, OnFailure, QueueState, Rejection,
    TaskId, Timestamp,
};
use windlass_engine::{EngineError, Submission};
use windlass_store::{
    SubmitKey,
    memory::{MemorySink, SharedStore},
};

use crate::world::{World, failed, flow, ok, submission};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A flow whose tasks are in the exclusive queue `orders`.
fn exclusive(flow_name: &str, steps: &[&str]) -> Flow {
    Flow { exclusive: Some(LockRef::Name(name("orders"))), ..flow(flow_name, steps, 0) }
}

fn holder(world: &World) -> Option<TaskId> {
    let lock = world.drive(world.engine.lock(&name("orders"))).ok()?;
    lock.holder.map(|holder| holder.owner.task)
}

fn submit_at(world: &World, at: Timestamp) -> TaskId {
    let input = Input { at: Some(at), ..Input::new(Json::empty(), world.now().wall) };
    world.drive(world.engine.submit(submission("order", input), world.now())).unwrap().loaded.task.id
}

/// A submission with an idempotency key of its own.
fn keyed(world: &World, n: u8) -> Submission {
    let key = Some(SubmitKey { scope: [n; 32], fingerprint: [n; 32] });
    Submission { key, ..submission("order", Input::new(Json::empty(), world.now().wall)) }
}

/// Submits it to a server that stands still once it has answered.
fn submit_keyed(world: &World, n: u8) -> TaskId {
    world.drive_no_further(world.engine.submit(keyed(world, n), world.now())).unwrap().loaded.task.id
}

/// Submits a task to a server that stands still once it has answered.
fn submit_only(world: &World) -> TaskId {
    let submission = submission("order", Input::new(Json::empty(), world.now().wall));
    let accepted = world.drive_no_further(world.engine.submit(submission, world.now()));
    accepted.unwrap().loaded.task.id
}

#[test]
fn tasks_run_one_after_the_other_in_the_order_in_which_they_were_accepted() {
    let world = World::new();
    world.apply(exclusive("order", &["pay", "send"]));
    let tasks: Vec<TaskId> = (0..5).map(|_| world.submit("order")).collect();
    world.pass(100);
    let mut worker = world.worker(1);
    let mut fences = Vec::new();
    for task in &tasks {
        for _ in 0..2 {
            let attempt = worker.take();
            assert_eq!((attempt.id.task, holder(&world)), (*task, Some(*task)));
            fences.push(attempt.task.queue_fence().unwrap().1);
            worker.report(&attempt.token, ok());
            world.pass(100);
        }
    }
    assert!(fences.is_sorted() && fences[0] < fences[2], "{fences:?}");
    assert_eq!(holder(&world), None);
    assert!(world.drive(world.engine.locks(None, 10)).unwrap().is_empty());
}

#[test]
fn start_times_come_first_also_those_in_the_past() {
    let world = World::new();
    world.apply(exclusive("order", &["pay"]));
    let head = world.submit("order");
    let second = world.submit("order");
    let now = world.now().wall;
    let (early, earliest) =
        (submit_at(&world, Timestamp(now.0 - 10)), submit_at(&world, Timestamp(now.0 - 20)));
    let late = submit_at(&world, Timestamp(now.0 + 500));
    world.pass(200);
    let third = world.submit("order");
    world.pass(1000);
    let mut worker = world.worker(1);
    for task in [head, earliest, early, second, third, late] {
        let attempt = worker.take();
        assert_eq!(attempt.id.task, task);
        worker.report(&attempt.token, ok());
        world.pass(100);
    }
}

#[test]
fn a_child_in_the_queue_of_its_parent_is_refused() {
    let world = World::new();
    world.apply(exclusive("order", &["pay"]));
    let mut parent = exclusive("parent", &["first"]);
    parent.steps[0].run.doer = Doer::Flow { name: name("order") };
    world.apply(parent);
    let task = world.submit("parent");
    world.pass(1000);
    let ended = world.task(task);
    assert!(ended.is_ended());
    let failure = ended.failed_step().unwrap();
    assert_eq!((failure.code, failure.retryable), (DATA_CODE, false));
    assert!(failure.message.contains("keeps the queue orders until it has ended"), "{}", failure.message);
    assert_eq!(holder(&world), None);
}

#[test]
fn an_operator_moves_the_queue_past_a_stuck_task_and_not_past_one_that_runs() {
    let world = World::new();
    world.apply(Flow { on_failure: OnFailure::Hold, ..exclusive("order", &["pay"]) });
    let (first, second) = (world.submit("order"), world.submit("order"));
    world.pass(100);
    let skip = || world.drive(world.engine.skip_queue(name("orders"), "waits for the bank", None));
    let mut worker = world.worker(1);
    let attempt = worker.take();
    assert!(matches!(skip(), Err(EngineError::Rejected(Rejection::UnderWay))));
    worker.report(&attempt.token, failed("no"));
    world.pass(100);
    assert_eq!(holder(&world), Some(first), "a stuck task keeps the queue");
    let (loaded, why) = world.drive(world.engine.why(second, world.now())).unwrap();
    assert!(loaded.task.waits_for_queue() && why.first().as_str() == "exclusive", "{why:?}");
    assert_eq!(skip().unwrap().task, first);
    world.pass(100);
    let attempt = worker.take();
    assert_eq!(attempt.id.task, second);
    let retry = Command::Resolve { step: 0, resolution: windlass_core::Resolution::Retry(None), by: None };
    world.drive(world.engine.tell(first, retry)).unwrap();
    world.pass(100);
    assert!(world.task(first).waits_for_queue());
    worker.report(&attempt.token, ok());
    world.pass(100);
    assert_eq!(worker.take().id.task, first);
    assert!(matches!(
        world.drive(world.engine.skip_queue(name("nothing"), "why", None)),
        Err(EngineError::NoQueueHolder(_))
    ));
}

#[test]
fn a_restart_changes_neither_the_holder_nor_the_order() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(exclusive("order", &["pay"]));
    let tasks: Vec<TaskId> = (0..3).map(|_| world.submit("order")).collect();
    world.pass(100);
    for task in tasks {
        let world = World::open(&sink);
        world.pass(1000);
        let mut worker = world.worker(1);
        let attempt = worker.take();
        assert_eq!(attempt.id.task, task);
        worker.report(&attempt.token, ok());
        world.pass(100);
    }
}

#[test]
fn the_commit_that_ends_a_task_starts_the_next_one() {
    let world = World::new();
    world.apply(exclusive("order", &["pay"]));
    let tasks: Vec<TaskId> = (0..3).map(|_| world.submit("order")).collect();
    world.pass(100);
    let mut worker = world.worker(1);
    for task in tasks {
        let attempt = worker.take();
        assert_eq!(
            (attempt.id.task, holder(&world)),
            (task, Some(task)),
            "without a service that carries messages"
        );
        worker.report(&attempt.token, ok());
    }
    assert_eq!(holder(&world), None);
}

#[test]
fn whoever_is_answered_first_is_in_the_queue_first_on_any_server() {
    let store = Arc::new(SharedStore::new([7; 32]));
    let (one, two) = (World::over(store.clone(), 1), World::over(store, 2));
    one.apply(exclusive("order", &["pay"]));
    let tasks: Vec<TaskId> = (0..6).map(|n| submit_only([&one, &two][n % 2])).collect();
    let lock = one.drive(one.engine.lock(&name("orders"))).unwrap();
    let waiters = lock.waiters().map(|waiter| waiter.owner.task);
    let order: Vec<TaskId> = lock.holder.iter().map(|holder| holder.owner.task).chain(waiters).collect();
    assert_eq!(order, tasks, "without a service that carries messages");
}

#[test]
fn a_repeated_submit_is_answered_when_its_task_is_in_the_queue_although_its_first_server_stopped() {
    let store = Arc::new(SharedStore::new([7; 32]));
    let (one, two) = (World::over(store.clone(), 1), World::over(store, 2));
    one.apply(exclusive("order", &["pay"]));
    let keyed = |n: u8| keyed(&one, n);
    let mut submitting = pin!(one.engine.submit(keyed(1), one.now()));
    assert!(submitting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The server commits the task, and stops before the commit in which the task joins.
    one.commit_once();
    let joined = |world: &World| {
        let Ok(lock) = world.drive(world.engine.lock(&name("orders"))) else { return Vec::new() };
        let waiters: Vec<TaskId> = lock.waiters().map(|waiter| waiter.owner.task).collect();
        lock.holder.iter().map(|holder| holder.owner.task).chain(waiters).collect()
    };
    assert_eq!(joined(&two), []);
    let both = two.drive_no_further(two.engine.submit_all(vec![keyed(1), keyed(2)], two.now())).unwrap();
    let tasks: Vec<TaskId> = both.into_iter().map(|accepted| accepted.unwrap().loaded.task.id).collect();
    assert_eq!(joined(&two), tasks, "without a service that carries messages");
    // The message is delivered already: the submit is only answered.
    let again = two.drive_no_further(two.engine.submit(keyed(2), two.now())).unwrap();
    assert_eq!((again.loaded.task.id, joined(&two)), (tasks[1], tasks));
}

#[test]
fn on_one_server_a_repeated_submit_does_not_overtake_the_task_before_it() {
    let world = World::new();
    world.apply(exclusive("order", &["pay"]));
    let tasks = [1, 2].map(|n| submit_keyed(&world, n));
    assert_eq!(submit_keyed(&world, 2), tasks[1]);
    world.pass(100);
    let attempt = world.worker(1).take();
    assert_eq!((attempt.id.task, holder(&world)), (tasks[0], Some(tasks[0])));
}

#[test]
fn a_task_whose_queue_was_taken_away_starts_nothing_before_it_learns_of_that() {
    let store = Arc::new(SharedStore::new([7; 32]));
    let (one, two) = (World::over(store.clone(), 1), World::over(store, 2));
    one.apply(exclusive("order", &["pay", "send"]));
    let (first, second) = (one.submit("order"), one.submit("order"));
    one.pass(100);
    let mut worker = one.worker(1);
    let attempt = worker.take();
    assert_eq!(attempt.id.task, first);
    // The other server takes the queue away and dies before it delivers the message about that.
    two.drive_no_further(two.engine.seize_lock(name("orders"), "its machine is gone", None)).unwrap();
    assert_eq!(holder(&one), Some(second));
    worker.report(&attempt.token, ok());
    let task = one.task(first);
    assert_eq!(task.act(ActKey::forward(0)).unwrap().state, windlass_core::ActState::Succeeded);
    assert_eq!(task.act(ActKey::forward(1)).unwrap().state, windlass_core::ActState::Parked);
    assert_eq!(task.state.queue.state, QueueState::Waiting);
    for _ in 0..20 {
        one.be_heard();
        one.pass(100);
    }
    let attempt = worker.take();
    assert_eq!(attempt.id.task, second);
}

#[test]
fn messages_to_a_task_arrive_although_its_queue_was_taken_away_before_them() {
    let store = Arc::new(SharedStore::new([7; 32]));
    let (one, two) = (World::over(store.clone(), 1), World::over(store, 2));
    let mut flow = exclusive("order", &["pay"]);
    flow.steps[0].locks = vec![LockRef::Name(name("bank"))];
    one.apply(flow);
    let task = submit_only(&one);
    // The task gets the queue and requests the lock, and the grant of the lock is on its way.
    (0..2).for_each(|_| one.commit_once());
    assert!(one.drive_no_further(one.engine.lock(&name("bank"))).is_ok());
    two.drive_no_further(two.engine.seize_lock(name("orders"), "its machine is gone", None)).unwrap();
    for _ in 0..20 {
        one.be_heard();
        one.pass(100);
    }
    let mut worker = one.worker(1);
    let attempt = worker.take();
    assert_eq!((attempt.id.task, holder(&one)), (task, Some(task)));
    worker.report(&attempt.token, ok());
    one.pass(100);
    assert!(one.task(task).is_ended());
}
