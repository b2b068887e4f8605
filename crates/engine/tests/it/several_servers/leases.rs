//! For how long workers keep what they have.

use std::{
    future::Future as _,
    pin::pin,
    task::{Context, Poll, Waker},
};

use windlass_engine::{EngineError, ReportStatus, Said, services::LeaseKeeper};

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

/// SIGSTOP and SIGCONT by turns, or a machine without CPU time.
#[test]
fn a_server_that_stands_still_again_and_again_keeps_attempts_of_a_dead_worker_for_two_new_leases_only() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let (dead, alive) = (world.submit("f"), world.submit("f"));
    let mut worker = world.worker(1);
    let attempts = worker.poll().attempts;
    assert_eq!(attempts.len(), 2);
    // The one that lives holds the second.
    let mut other = world.worker(2);
    world.pass(12_000);
    let again = other.poll().attempts;
    assert_eq!(again.len(), 2);
    let mut third = world.worker(3);
    let given_back = again.iter().find(|attempt| attempt.id.task == alive).unwrap();
    assert_eq!(other.report(&given_back.token, Said::Declined), ReportStatus::Accepted);
    third.take();
    for _ in 0..80 {
        third.poll();
        world.be_away(500);
    }
    let deaths = |id| world.task(id).state.steps[0].forward.deaths;
    assert_eq!((deaths(dead), deaths(alive)), (2, 1), "who is heard of in between keeps what it has");
}

/// The program runs it beside the services that wait for commits. A server that waits for a slow disk is there.
#[test]
fn leases_are_kept_while_a_commit_is_under_way() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    world.worker(1).take();
    let keeper = LeaseKeeper::new(world.engine.clone());
    for _ in 0..120 {
        world.be_away_unserved(100);
        let round = pin!(keeper.run_once(world.now()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(round.poll(&mut context), Poll::Ready(Ok(()))), "it waits for no commit");
    }
    world.serve();
    assert_eq!(world.task(id).state.steps[0].forward.deaths, 1, "nothing was taken for an absence");
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

/// It would make every later call of the worker look like a late copy, and give its attempts to another.
#[test]
fn a_call_whose_number_leaps_is_refused_and_changes_nothing() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    let mut thief = world.worker(1);
    thief.seq = (1 << 63) - 2;
    let call = thief.call(0);
    let refused = world.drive(world.engine.exchange(call, world.now())).unwrap_err();
    assert_eq!(refused, EngineError::SeqLeap { last: 1, seq: (1 << 63) - 1 });
    assert_eq!(worker.poll().attempts.len(), 0);
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
    // After a silence of an hour a worker may have made many calls elsewhere.
    world.be_away_unserved(3_600_000);
    worker.seq += 300_000_000;
    worker.poll();
}
