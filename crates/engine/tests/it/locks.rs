//! Locks over the whole engine: one holder at a time, first come first served, and none is lost.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
};

use futures_executor::block_on;
use windlass_core::{ActState, Awaited, Command, Flow, LockRef, Name, TaskId};
use windlass_engine::{Committer, EngineError, Exchange, WorkerReport};
use windlass_store::{memory::MemorySink, resident::Resident};

use crate::{
    faulty_store::{FaultyStore, Verb},
    world::{World, failed, flow, ok},
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A flow of one step that needs these locks.
fn locked(name: &str, locks: &[&str], retries: u32) -> Flow {
    let mut flow = flow(name, &["write"], retries);
    flow.steps[0].locks = locks.iter().map(|lock| LockRef::Name(Name::new(lock).unwrap())).collect();
    flow
}

fn holder(world: &World, lock: &str) -> Option<TaskId> {
    let lock = world.drive(world.engine.lock(&name(lock))).ok()?;
    lock.holder.map(|holder| holder.owner.task)
}

#[test]
fn one_after_the_other_gets_the_lock_in_the_order_they_came() {
    let world = World::new();
    world.apply(locked("backup", &["disk"], 0));
    let tasks: Vec<TaskId> = (0..3).map(|_| world.submit("backup")).collect();
    world.pass(100);
    let mut worker = world.worker(1);
    let mut fences = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        let attempt = worker.take();
        assert_eq!(attempt.id.task, *task, "first come, first served");
        assert_eq!(holder(&world, "disk"), Some(*task));
        let lock = world.drive(world.engine.lock(&name("disk"))).unwrap();
        assert_eq!(lock.waiting(), tasks.len() - place - 1);
        fences.extend(attempt.task.act(attempt.id.key).unwrap().locks()[0].fence);
        worker.report(&attempt.token, ok());
        world.pass(100);
    }
    assert!(fences.len() == 3 && fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    assert_eq!(holder(&world, "disk"), None);
    assert!(world.drive(world.engine.locks(None, 10)).unwrap().is_empty());
    assert!(tasks.iter().all(|task| world.status(*task) == "Succeeded: Succeeded"));
}

#[test]
fn a_task_that_requests_a_lock_while_a_batch_is_decided_gets_it() {
    let sink = MemorySink::new([7; 32]);
    let resident = block_on(Resident::open(Arc::new(sink), World::new().now())).unwrap();
    let store = FaultyStore::new(Arc::new(resident));
    let world = World::over(store.clone(), 1);
    world.apply(locked("backup", &["disk"], 0));
    let mut restore = flow("restore", &["prepare", "write"], 0);
    restore.steps[1].locks = vec![LockRef::Name(name("disk"))];
    world.apply(restore);
    let first = world.submit("backup");
    world.pass(100);
    let mut worker = world.worker(1);
    let of_first = worker.take();
    let second = world.submit("restore");
    let of_second = worker.take();
    assert_eq!((of_first.id.task, of_second.id.task), (first, second));

    // One batch ends the first task, and looks at the second one, which does not wait for the lock yet.
    let reports = vec![WorkerReport { token: of_first.token.clone(), said: Ok(ok()), logs: Vec::new() }];
    let call = Exchange { claim_requests: None, reports, ..worker.call(0) };
    let mut told = pin!(world.engine.exchange(call, world.now()));
    let mut resumed = pin!(world.engine.tell(second, Command::Resume { by: None }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(
        told.as_mut().poll(&mut context).is_pending() && resumed.as_mut().poll(&mut context).is_pending()
    );
    let other = Committer::new(world.engine.clone());
    store.hold_next(Verb::Locks);
    {
        let mut commit = pin!(other.run_once(|| world.now()));
        assert!(commit.as_mut().poll(&mut context).is_pending(), "the lock is being read");
        // Meanwhile the second task requests the lock.
        worker.report(&of_second.token, ok());
        world.serve();
        let lock = world.drive(world.engine.lock(&name("disk"))).unwrap();
        assert_eq!(lock.waiters().map(|waiter| waiter.owner.task).collect::<Vec<_>>(), [second]);
        store.let_go();
        block_on(commit);
    }
    world.drive(told).unwrap();
    world.drive(resumed).unwrap();
    world.pass(100);
    assert_eq!(holder(&world, "disk"), Some(second));
}

#[test]
fn two_that_need_the_same_locks_never_wait_for_one_another() {
    let world = World::new();
    world.apply(locked("there", &["a", "b"], 0));
    world.apply(locked("back", &["b", "a"], 0));
    let tasks: Vec<TaskId> = (0..6).map(|n| world.submit(["there", "back"][n % 2])).collect();
    let mut worker = world.worker(1);
    for _ in &tasks {
        world.pass(100);
        let attempt = worker.take();
        worker.report(&attempt.token, ok());
    }
    world.pass(100);
    assert!(tasks.iter().all(|task| world.task(*task).is_ended()));
}

#[test]
fn a_lock_goes_on_when_its_task_fails_is_cancelled_or_loses_its_worker() {
    let world = World::new();
    world.apply(locked("backup", &["disk"], 0));
    let (first, second, third) = (world.submit("backup"), world.submit("backup"), world.submit("backup"));
    world.pass(100);
    let mut worker = world.worker(1);
    let attempt = worker.take();
    world.drive(world.engine.tell(second, Command::Cancel { by: None })).unwrap();
    worker.report(&attempt.token, failed("no"));
    world.pass(100);
    let attempt = worker.take();
    assert_eq!(
        (attempt.id.task, holder(&world, "disk")),
        (third, Some(third)),
        "the rollback waits its turn"
    );
    // The worker is silent: the attempt is lost, the lock is not.
    let fence = world.task(third).act(attempt.id.key).unwrap().locks()[0].fence;
    world.pass(60_000);
    assert_eq!(holder(&world, "disk"), Some(third));
    let mut other = world.worker(2);
    let again = other.take();
    assert_eq!(again.task.act(again.id.key).unwrap().locks()[0].fence, fence);
    other.report(&again.token, ok());
    world.pass(100);
    let undo = other.take();
    assert_eq!((undo.id.task, holder(&world, "disk")), (first, Some(first)), "the rollback has it again");
    other.report(&undo.token, ok());
    world.pass(100);
    assert_eq!(holder(&world, "disk"), None);
}

#[test]
fn locks_and_those_who_wait_survive_a_restart() {
    let sink = MemorySink::new([7; 32]);
    let (first, second);
    {
        let world = World::open(&sink);
        world.apply(locked("backup", &["disk"], 0));
        (first, second) = (world.submit("backup"), world.submit("backup"));
        world.pass(100);
        assert_eq!(holder(&world, "disk"), Some(first));
    }
    let world = World::open(&sink);
    world.pass(1_000);
    let lock = world.drive(world.engine.lock(&name("disk"))).unwrap();
    assert_eq!(lock.holder.map(|holder| holder.owner.task), Some(first));
    assert_eq!(lock.waiters().map(|waiter| waiter.owner.task).collect::<Vec<_>>(), [second]);
    let mut worker = world.worker(1);
    for task in [first, second] {
        let attempt = worker.take();
        assert_eq!(attempt.id.task, task);
        worker.report(&attempt.token, ok());
        world.pass(100);
    }
    assert_eq!(holder(&world, "disk"), None);
}

#[test]
fn a_person_takes_a_lock_and_the_history_of_its_task_says_so() {
    let world = World::new();
    world.apply(locked("backup", &["disk"], 0));
    let (first, second) = (world.submit("backup"), world.submit("backup"));
    world.pass(100);
    let mut worker = world.worker(1);
    let attempt = worker.take();
    let seized = world.drive(world.engine.seize_lock(name("disk"), "its machine is gone", None)).unwrap();
    assert_eq!(seized.from.owner.task, first);
    assert_eq!(seized.lock.holder.map(|holder| holder.owner.task), Some(second));
    world.pass(100);
    let act = world.task(first).state.steps[0].forward.clone();
    assert!(act.locks()[0].seized && act.state == ActState::Ready, "it is not stopped");
    let next = worker.take();
    assert_eq!(next.id.task, second);
    // What the former holder says is heard as ever, and takes nothing from the one who has the lock now.
    worker.report(&attempt.token, ok());
    world.pass(100);
    assert_eq!(holder(&world, "disk"), Some(second));
    let unknown = world.drive(world.engine.seize_lock(name("other"), "why", None));
    assert_eq!(unknown.err(), Some(EngineError::UnknownLock(name("other"))));
}

#[test]
fn a_task_that_waits_for_a_lock_waits_in_a_pause_as_well() {
    let world = World::new();
    world.apply(locked("backup", &["disk"], 0));
    let (first, second) = (world.submit("backup"), world.submit("backup"));
    world.pass(100);
    world.drive(world.engine.tell(second, Command::Pause { by: None })).unwrap();
    let mut worker = world.worker(1);
    let attempt = worker.take();
    worker.report(&attempt.token, ok());
    world.pass(100);
    assert_eq!(holder(&world, "disk"), Some(second));
    assert_eq!(world.task(second).state.steps[0].forward.state, ActState::Parked);
    assert!(worker.poll().attempts.is_empty());
    world.drive(world.engine.tell(second, Command::Resume { by: None })).unwrap();
    let attempt = worker.take();
    assert_eq!(attempt.id.task, second);
    assert_ne!(world.task(first).state.steps[0].forward.state, ActState::Awaiting(Awaited::Lock));
}
