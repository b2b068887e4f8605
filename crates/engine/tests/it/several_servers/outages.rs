//! Renewals do not reach the store, or reach it late. Workers that were not silent keep their attempts.

use std::{pin::pin, sync::Arc, task::Poll};

use windlass_engine::ReportStatus;
use windlass_store::memory::SharedStore;

use crate::{
    faulty_store::{FaultyStore, Verb},
    world::{World, flow, ok},
};

/// Longer than the lease of an attached worker.
const OUTAGE_MS: i64 = 12_000;

const STEP_MS: i64 = 100;

/// Two servers on one store that fails when a test says so.
fn two() -> (Arc<FaultyStore>, World, World) {
    let store = FaultyStore::new(Arc::new(SharedStore::new([7; 32])));
    let (one, other) = (World::over(store.clone(), 1), World::over(store.clone(), 2));
    for world in [&one, &other] {
        world.be_heard();
        world.keep_leases().unwrap();
    }
    (store, one, other)
}

/// A round of the lease keeper that has nothing to renew says nothing about the store.
#[test]
fn workers_whose_renewals_hang_before_they_fail_were_not_silent() {
    let (store, world, _) = two();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    world.pass(500);
    store.fail(Some(Verb::Renew));
    for _ in 0..OUTAGE_MS / (2 * STEP_MS) {
        store.hold_next(Verb::Renew);
        let mut poll = pin!(worker.open_poll(0));
        assert!(world.turn(poll.as_mut()).is_pending());
        world.be_away_unserved(STEP_MS);
        // It fails if it wants to write.
        let _ = world.keep_leases();
        world.be_away_unserved(STEP_MS);
        store.let_go();
        assert!(matches!(world.turn(poll.as_mut()), Poll::Ready(Err(_))));
    }
    store.fail(None);
    world.be_heard();
    assert_eq!(world.reclaim(), 0, "before the lease keeper knows that the store is back");
    world.pass(1000);
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}

/// Behind a load balancer all workers may call another server than the one that reclaims attempts.
#[test]
fn workers_of_other_servers_were_not_silent() {
    let (store, leader, other) = two();
    other.apply(flow("f", &["a"], 0));
    other.submit("f");
    let mut worker = other.worker(1);
    let attempt = worker.take();
    store.fail(Some(Verb::Renew));
    for step in 1..=OUTAGE_MS / STEP_MS {
        for world in [&leader, &other] {
            world.be_away_unserved(STEP_MS);
            if step % 10 == 0 {
                world.try_to_be_heard().unwrap_err();
            }
            // It fails if it wants to write.
            let _ = world.keep_leases();
        }
    }
    store.fail(None);
    leader.be_heard();
    assert_eq!(leader.reclaim(), 0, "before its lease keeper knows that the store is back");
    leader.pass(500);
    other.be_heard();
    other.pass(500);
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}

#[test]
fn a_slow_store_does_not_protect_a_worker_that_is_gone() {
    const RENEWAL_MS: i64 = 600;
    let (store, world, _) = two();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    world.worker(1).take();
    let mut worker = world.worker(2);
    for _ in 0..40_000 / RENEWAL_MS {
        worker.poll();
        // The lease keeper renews a session that was renewed a moment ago.
        worker.poll();
        store.hold_next(Verb::Renew);
        let mut round = pin!(world.lease_keeper.run_once(world.now()));
        assert!(world.turn(round.as_mut()).is_pending());
        world.be_away_unserved(RENEWAL_MS);
        world.be_heard();
        world.reclaim();
        store.let_go();
        world.drive(round.as_mut()).unwrap();
    }
    assert_eq!(world.task(id).state.steps[0].forward.attempt, 2);
}
