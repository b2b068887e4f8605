//! Many workers that wait for the same.

use std::{pin::Pin, sync::Arc, task::Poll};

use windlass_store::{memory::MemorySink, resident::Resident};

use crate::{
    faulty_store::FaultyStore,
    world::{World, flow},
};

/// What a commit costs must not grow with the number of workers that have nothing to do.
#[test]
fn of_polls_that_wait_for_the_same_one_alone_asks_the_store_when_there_is_nothing() {
    const WORKERS: usize = 50;
    let sink = MemorySink::new([7; 32]);
    let resident = futures_executor::block_on(Resident::open(Arc::new(sink), World::new().now())).unwrap();
    let store = FaultyStore::new(Arc::new(resident));
    let world = World::over(store.clone(), 1);
    world.apply(flow("f", &["a"], 0));
    let mut workers: Vec<_> = (1..=WORKERS).map(|number| world.worker(number as u128)).collect();
    let mut polls: Vec<Pin<Box<_>>> =
        workers.iter_mut().map(|worker| Box::pin(worker.open_poll(10_000))).collect();
    assert!(polls.iter_mut().all(|poll| world.turn(poll.as_mut()).is_pending()));
    store.take_prepared();
    world.serve();
    assert_eq!(store.take_prepared(), 1);
    world.submit("f");
    assert_eq!(store.take_prepared(), 1, "the first one gets all there is");
    let answered = polls.iter_mut().map(|poll| world.turn(poll.as_mut()));
    let attempts = answered.map(|answer| match answer {
        Poll::Ready(answer) => answer.unwrap().attempts.len(),
        Poll::Pending => 0,
    });
    assert_eq!(attempts.sum::<usize>(), 1);
}
