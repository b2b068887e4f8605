//! For how long workers keep what they have.

use std::pin::pin;

use windlass_engine::ReportStatus;

use crate::world::{World, flow, ok};

#[test]
fn an_attached_worker_whose_connection_goes_away_loses_its_attempts_within_a_second() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let lost = worker.take();
    {
        let mut poll = pin!(worker.open_poll(10_000));
        assert!(world.turn(poll.as_mut()).is_pending());
        world.pass(2000);
        assert_eq!(world.status(id), "Running: Running", "an open poll keeps the session");
    }
    world.pass(1200);
    assert_eq!(world.status(id), "Running: Ready");
    let mut other = world.worker(2);
    let again = other.take();
    assert_eq!((again.id.attempt, world.task(id).state.steps[0].forward.deaths), (2, 1));
    assert_eq!(worker.report(&lost.token, ok()), ReportStatus::Stale);
    assert_eq!(other.report(&again.token, ok()), ReportStatus::Accepted);
}

#[test]
fn a_detached_worker_lives_by_its_lease() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    worker.take();
    world.pass(29_000);
    assert_eq!(world.status(id), "Running: Running");
    world.pass(1500);
    assert_eq!(world.status(id), "Running: Ready");
}

#[test]
fn a_worker_that_waits_as_long_as_its_lease_keeps_what_it_holds() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    worker.take();
    let mut poll = pin!(worker.open_poll(30_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(15_050);
    assert!(world.turn(poll.as_mut()).is_ready(), "it ends well before the lease");
    let mut poll = pin!(worker.open_poll(30_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(15_050);
    assert_eq!(world.task(id).state.steps[0].forward.deaths, 0);
}

#[test]
fn a_server_that_was_away_gives_every_worker_a_full_new_lease() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.take();
    world.serve();
    world.be_away(60_000);
    assert_eq!(world.status(id), "Running: Running");
    world.pass(9000);
    assert_eq!(world.status(id), "Running: Running");
    world.pass(1500);
    assert_eq!(world.status(id), "Running: Ready");
}

#[test]
fn an_attempt_beyond_its_timeout_is_given_up_and_its_worker_told() {
    let world = World::new();
    let mut slow = flow("f", &["a"], 1);
    slow.steps[0].run.timeout = windlass_core::Millis(2000);
    world.apply(slow);
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    let attempt = worker.take();
    world.pass(1500);
    assert_eq!(world.status(id), "Running: Running");
    world.pass(600);
    assert_eq!(world.status(id), "Running: Ready");
    assert_eq!(worker.poll().cancels, [attempt.token]);
}

#[test]
fn an_attempt_that_follows_a_lost_one_goes_before_what_came_later() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let first = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    worker.take();
    world.pass(10);
    world.submit("f");
    world.pass(31_000);
    let again = world.worker(2).poll().attempts;
    assert_eq!((again[0].id.task, again[0].id.attempt), (first, 2));
}
