//! Polls that wait: of many workers for the same, and of one worker whose older call arrives late.

use std::{
    pin::{Pin, pin},
    task::Poll,
};

use windlass_core::Name;
use windlass_engine::Exchange;
use windlass_store::ClaimRequest;

use crate::{
    faulty_store::faulty,
    world::{World, flow},
};

/// What a commit costs must not grow with the number of workers that have nothing to do.
#[test]
fn of_polls_that_wait_for_the_same_one_alone_asks_the_store_when_there_is_nothing() {
    const WORKERS: usize = 50;
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    let mut workers: Vec<_> = (1..=WORKERS).map(|number| world.worker(number as u128)).collect();
    let mut polls: Vec<Pin<Box<_>>> =
        workers.iter_mut().map(|worker| Box::pin(worker.open_poll(10_000))).collect();
    assert!(polls.iter_mut().all(|poll| world.turn(poll.as_mut()).is_pending()));
    store.take_claims();
    world.serve();
    assert_eq!(store.take_claims(), 1);
    world.submit("f");
    assert_eq!(store.take_claims(), 1, "the first one gets all there is");
    let answered = polls.iter_mut().map(|poll| world.turn(poll.as_mut()));
    let attempts = answered.map(|answer| match answer {
        Poll::Ready(answer) => answer.unwrap().attempts.len(),
        Poll::Pending => 0,
    });
    assert_eq!(attempts.sum::<usize>(), 1);
}

#[test]
fn the_free_slots_of_an_older_call_do_not_replace_those_of_a_newer_one() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let mut worker = world.worker(1);
    let other = ClaimRequest { module: Name::new("other").unwrap(), commands: None, free: 10 };
    let older = Exchange { claim_requests: Some(vec![other]), ..worker.call(0) };
    let mut waits = pin!(worker.open_poll(10_000));
    assert!(world.turn(waits.as_mut()).is_pending());
    world.drive(world.engine.exchange(older, world.now())).unwrap();
    let id = world.submit("f");
    let Poll::Ready(answer) = world.turn(waits.as_mut()) else { panic!("the poll has free slots for it") };
    assert_eq!(answer.unwrap().attempts[0].id.task, id);
}
