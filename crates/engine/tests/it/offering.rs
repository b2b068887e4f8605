//! What is offered on a broker, and who may begin it.

use std::sync::Arc;

use windlass_brokers::{Message, Queue};
use windlass_core::Name;
use windlass_engine::{
    HandedOut, ReportStatus, Said,
    services::{Courier, CourierSettings, WriteStep},
};

use crate::{
    broker::TestBroker,
    world::{World, flow, ok},
};

/// Says under which token an attempt goes.
struct Tokens;

impl WriteStep for Tokens {
    fn message(&self, attempt: &HandedOut, _has_headers: bool) -> Message {
        Message::new(attempt.token.clone(), "", "")
    }

    fn reference(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        self.message(attempt, has_headers)
    }
}

fn courier(world: &World, broker: &Arc<TestBroker>, chance: u64) -> Courier {
    let settings = CourierSettings { module: Name::new("m").unwrap(), queue: Queue::new("m"), window: 10 };
    Courier::new(world.engine.clone(), broker.clone(), Arc::new(Tokens), settings, chance)
}

#[test]
fn who_runs_what_was_offered_first_does_not_begin_it_again_when_it_is_offered_anew() {
    let world = World::new();
    let broker = TestBroker::new(1, 0);
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let first = courier(&world, &broker, 1);
    world.drive(first.run_once(world.now())).unwrap();
    // The first courier is gone, and another one follows.
    world.pass(60_000);
    world.drive(courier(&world, &broker, 2).run_once(world.now())).unwrap();
    let [early, late] = broker.published.lock().unwrap().clone().try_into().expect("it was offered twice");
    assert_ne!(early, late);
    let mut worker = world.worker(1);
    assert!(worker.poll().attempts.is_empty(), "it is offered");
    assert_eq!(worker.report(&early, Said::Running(None)), ReportStatus::Accepted);
    worker.holding.push(early.clone());
    assert_eq!(worker.report(&late, Said::Running(None)), ReportStatus::Stale, "it runs already");
    assert_eq!(worker.report(&early, Said::Running(None)), ReportStatus::Accepted);
    assert_eq!(worker.report(&early, ok()), ReportStatus::Accepted);
}
