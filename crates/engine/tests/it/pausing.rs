//! A task that an operator or the engine holds: what workers have may end, and nothing begins, whatever becomes of
//! its workers and of this server meanwhile.

use std::sync::Arc;

use futures_executor::block_on;
use windlass_core::{ActKey, ActState, Command, Failure, Outcome, Rejection, TaskId};
use windlass_engine::{EngineError, ReportStatus, Said};
use windlass_store::{
    memory::{MemorySink, SharedStore},
    resident::Resident,
};

use crate::world::{World, flow, ok};

fn tell(world: &World, id: TaskId, command: Command) {
    world.drive(world.engine.tell(id, command)).unwrap();
    world.serve();
}

fn pause(world: &World, id: TaskId) {
    tell(world, id, Command::Pause { by: None });
}

fn resume(world: &World, id: TaskId) {
    tell(world, id, Command::Resume { by: None });
}

/// The attempt of the first step is back where a pause keeps it: nobody gets it, and nothing was counted.
fn is_parked(world: &World, id: TaskId) {
    world.serve();
    assert!(world.worker(9).poll().attempts.is_empty(), "nothing of a paused task is handed out");
    assert_eq!(world.status(id), "Paused: Ready Pending");
    let act = &world.task(id).state.steps[0].forward;
    assert_eq!((act.state, act.attempt, act.deaths, act.failures), (ActState::Parked, 1, 0, 0));
}

#[test]
fn a_declined_attempt_of_a_paused_task_waits_for_the_resume() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    pause(&world, id);
    assert_eq!(world.status(id), "Pausing: Running Pending");
    assert_eq!(worker.report(&a.token, Said::Declined), ReportStatus::Accepted);
    is_parked(&world, id);
    resume(&world, id);
    assert_eq!(world.worker(2).take().id.attempt, 1, "the attempt that was given back");
}

/// A task that was paused while a worker had its first step. The server and the worker are gone, so the attempt is parked.
fn parked(sink: &MemorySink) -> (World, TaskId) {
    let world = World::open(sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    world.worker(1).take();
    pause(&world, id);
    let world = World::open(sink);
    world.pass(400);
    is_parked(&world, id);
    (world, id)
}

fn is_rolled_back_when_cancelled(world: &World, id: TaskId) {
    is_parked(world, id);
    tell(world, id, Command::Cancel { by: None });
    assert!(world.task(id).state.steps[0].touched, "a worker may have done something");
    let undo = world.worker(2).take();
    assert_eq!((undo.id.task, undo.id.key), (id, ActKey::rollback(0)));
}

#[test]
fn what_a_worker_may_have_done_before_a_pause_is_rolled_back_in_another_store() {
    let sink = MemorySink::new([7; 32]);
    let (world, id) = parked(&sink);
    let other = MemorySink::new([8; 32]);
    world.move_to(&sink, &block_on(Resident::open(Arc::new(other.clone()), world.now())).unwrap());
    is_rolled_back_when_cancelled(&World::open(&other), id);
}

#[test]
fn what_a_worker_may_have_done_before_a_pause_is_rolled_back_in_a_store_that_servers_share() {
    let sink = MemorySink::new([7; 32]);
    let (world, id) = parked(&sink);
    let other = SharedStore::new([8; 32]);
    world.move_to(&sink, &other);
    is_rolled_back_when_cancelled(&World::over(Arc::new(other), 1), id);
}

#[test]
fn a_declined_attempt_of_a_task_that_the_engine_holds_waits_for_the_resume() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    tell(&world, id, Command::Hold { message: "a count is off".into() });
    worker.report(&a.token, Said::Declined);
    world.serve();
    assert!(world.worker(9).poll().attempts.is_empty(), "nothing of a held task is handed out");
    assert_eq!(world.task(id).state.steps[0].forward.state, ActState::Parked);
    resume(&world, id);
    world.worker(2).take();
}

#[test]
fn a_paused_task_whose_worker_does_not_come_back_after_a_restart_waits_for_the_resume() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    world.worker(1).take();
    pause(&world, id);

    let world = World::open(&sink);
    world.pass(400);
    is_parked(&world, id);
    resume(&world, id);
    assert_eq!(world.worker(2).take().id.attempt, 1);
}

#[test]
fn a_paused_task_whose_worker_comes_back_after_a_restart_is_pausing_until_it_is_done() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    pause(&world, id);

    let world = World::open(&sink);
    let mut worker = worker.at(&world);
    worker.poll();
    world.pass(400);
    assert_eq!(world.status(id), "Pausing: Running Pending");
    assert_eq!(worker.report(&a.token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Paused: Succeeded Ready");
    assert!(worker.poll().attempts.is_empty());
}

#[test]
fn a_failure_in_a_pause_is_undone_on_resume() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    pause(&world, id);
    let boom = Said::Ended(Outcome::Failed(Failure::new("boom", 1, false)));
    assert_eq!(worker.report(&a.token, boom), ReportStatus::Accepted);
    world.serve();
    assert!(worker.poll().attempts.is_empty());
    assert_eq!(world.status(id), "Paused: RollingBack Pending");
    resume(&world, id);
    assert_eq!(worker.take().id.key, windlass_core::ActKey::rollback(0));
}

#[test]
fn a_worker_that_comes_back_late_to_a_paused_task_may_end_what_it_has() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    pause(&world, id);

    let world = World::open(&sink);
    world.pass(400);
    is_parked(&world, id);
    let mut worker = worker.at(&world);
    // To stop it would make a failure of a pause.
    assert_eq!(worker.poll().cancels, Vec::<String>::new());
    assert_eq!(worker.report(&a.token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Paused: Succeeded Ready");
}

#[test]
fn an_answer_that_did_not_arrive_before_a_pause_is_not_given_again() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.take();
    worker.holding.clear();
    pause(&world, id);
    assert!(worker.poll().attempts.is_empty(), "nothing of a paused task begins");
    assert!(worker.poll().attempts.is_empty(), "the second poll says that the answer did not arrive");
    is_parked(&world, id);
    resume(&world, id);
    worker.take();
}

/// World 1795808782945276 of the simulator.
#[test]
fn a_poll_that_crosses_an_answer_does_not_take_the_attempt_away() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let given = worker.take();
    let holding = std::mem::take(&mut worker.holding);
    tell(&world, id, Command::Cancel { by: None });
    assert!(worker.poll().attempts.is_empty(), "it was sent before the answer arrived");
    world.serve();
    worker.holding = holding;
    // The cancel went out with the answer to that poll, and is repeated after a while.
    world.pass(500);
    worker.poll();
    world.pass(500);
    let cancels = worker.poll().cancels;
    assert_eq!(cancels, [given.token], "the worker that runs it is asked to stop");
    assert_eq!(world.task(id).state.steps[0].forward.state, ActState::Ready, "and it has not ended before");
}

#[test]
fn an_answer_that_did_not_arrive_before_a_cancel_does_not_hold_the_task_up() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.take();
    worker.holding.clear();
    tell(&world, id, Command::Cancel { by: None });
    assert!(worker.poll().attempts.is_empty(), "the step is not begun any more");
    assert!(worker.poll().attempts.is_empty(), "the second poll says that the answer did not arrive");
    world.serve();
    let undo = worker.take();
    assert_eq!(undo.id.key, windlass_core::ActKey::rollback(0));
}

#[test]
fn a_resume_finds_the_worker_that_came_back_late() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    pause(&world, id);

    let world = World::open(&sink);
    world.pass(400);
    is_parked(&world, id);
    let mut worker = worker.at(&world);
    worker.poll();
    resume(&world, id);
    let answer = worker.poll();
    assert_eq!((answer.attempts.len(), answer.cancels.len()), (0, 0), "it is its own again");
    assert!(world.worker(2).poll().attempts.is_empty());
    assert_eq!(world.status(id), "Running: Running Pending");
    assert_eq!(worker.report(&a.token, ok()), ReportStatus::Accepted);
}

#[test]
fn what_runs_is_stopped_and_begins_again_only_when_its_worker_has_reported_that() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    tell(&world, id, Command::Stop { by: None });
    assert_eq!(world.status(id), "Pausing: Running Pending");
    assert_eq!(worker.poll().cancels, std::slice::from_ref(&a.token), "the worker must stop");
    let refused = world.drive(world.engine.tell(id, Command::Resume { by: None }));
    assert!(matches!(refused, Err(EngineError::Rejected(Rejection::Stopping))), "it has not reported that");
    let stopped = Said::Ended(Outcome::Failed(Failure::new("stopped", 143, true)));
    assert_eq!(worker.report(&a.token, stopped), ReportStatus::Accepted);
    world.serve();
    assert_eq!(world.status(id), "Paused: Ready Pending");
    assert!(worker.poll().attempts.is_empty());
    resume(&world, id);
    assert_eq!(worker.take().id.attempt, 2);
    let act = &world.task(id).state.steps[0].forward;
    assert_eq!((act.deaths, act.failures), (0, 0));
}

#[test]
fn a_stopped_attempt_of_a_worker_that_is_gone_counts_no_death() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    world.worker(1).take();
    tell(&world, id, Command::Stop { by: None });
    world.pass(60_000);
    world.serve();
    assert_eq!(world.status(id), "Paused: Ready Pending");
    let act = &world.task(id).state.steps[0].forward;
    assert_eq!((act.state, act.attempt, act.deaths, act.failures), (ActState::Parked, 2, 0, 0));
}
