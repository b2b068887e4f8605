//! A server that was started anew on what another one left.

use std::{pin::pin, task::Poll};

use windlass_core::Command;
use windlass_engine::{ReportStatus, memory::MemorySink};

use crate::world::{World, flow, ok};

#[test]
fn after_a_restart_workers_name_what_they_hold_and_nothing_runs_twice() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    drop(world.engine.clone());

    let world = World::open(&sink);
    let mut worker = worker.at(&world);
    let mut stranger = world.worker(2);
    assert!(stranger.poll().attempts.is_empty(), "what was ready waits for the grace");
    assert!(worker.poll().attempts.is_empty());
    world.pass(400);
    assert!(stranger.poll().attempts.is_empty(), "it was adopted");
    assert_eq!(world.status(id), "Running: Running Pending");
    assert_eq!(worker.report(&a.token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Running: Succeeded Ready");
}

#[test]
fn after_a_restart_what_nobody_names_is_handed_out_again_under_a_higher_claim() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let old = world.worker(1).take();

    let world = World::open(&sink);
    world.pass(400);
    let mut other = world.worker(2);
    let new = other.take();
    assert_eq!(new.id.attempt, old.id.attempt);
    assert!(new.id.claim > old.id.claim);
    let mut late = world.worker(1);
    assert_eq!(late.report(&old.token, ok()), ReportStatus::Stale);
    assert_eq!(other.report(&new.token, ok()), ReportStatus::Accepted);
}

#[test]
fn a_report_of_an_attempt_that_was_not_handed_out_again_is_accepted_after_a_restart() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let old = world.worker(1).take();
    let world = World::open(&sink);
    assert_eq!(world.worker(1).report(&old.token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Succeeded: Succeeded");
}

#[test]
fn a_poll_that_waits_through_the_grace_is_answered_at_its_end() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let world = World::open(&sink);
    let mut worker = world.worker(1);
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(400);
    let Poll::Ready(answer) = world.turn(poll.as_mut()) else { panic!("the poll is answered") };
    assert_eq!(answer.unwrap().attempts.len(), 1);
}

#[test]
fn a_task_that_turned_around_hands_nothing_forward_out_again_after_a_restart() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    world.worker(1).take();
    world.drive(world.engine.tell(id, Command::Cancel { by: None })).unwrap();
    assert_eq!(world.status(id), "RollingBack: Running Pending");

    let world = World::open(&sink);
    world.pass(400);
    let undo = world.worker(2).take();
    assert_eq!(undo.id.key, windlass_core::ActKey::rollback(0), "nobody has the step any more: it is undone");
}
