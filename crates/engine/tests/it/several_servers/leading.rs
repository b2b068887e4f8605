//! A server that stood still for longer than its lease still believes that it leads. What its services write then is
//! refused without an error, and everything else goes on.

use std::sync::Arc;

use futures_executor::block_on;
use futures_util::future::join;
use windlass_brokers::{Announcement, Message, Topic};
use windlass_core::{Event, Flow, Input, Json, Millis, OnFailure, Task, TaskId};
use windlass_engine::{
    EngineError, Exchange, RoundsOf, WorkerReport,
    services::{Janitor, OutboxRelay, Timekeeper, TopicSubscriber, WriteEvent},
};
use windlass_store::{Retention, Store as _};

use crate::{
    brokers::TestBroker,
    several_servers::Two,
    world::{World, failed, flow, ok, submission},
};

impl Two {
    /// The first server stands still from now on, and the other one has taken its leases.
    fn take_over(&self) {
        self.other.be_away_unserved(15_000);
        self.other.be_heard();
    }

    fn messages(&self) -> usize {
        block_on(self.store.messages(10)).unwrap().len()
    }

    fn versions(&self, tasks: &[TaskId]) -> Vec<Option<u64>> {
        block_on(self.store.versions(tasks)).unwrap()
    }
}

/// A task whose first attempt has failed and is to be made again in a second.
fn to_be_tried_again(world: &World) -> TaskId {
    world.apply(flow("retried", &["a"], 1));
    let id = world.submit("retried");
    let mut worker = world.worker(9);
    let attempt = worker.take();
    worker.report(&attempt.token, failed("no"));
    id
}

fn failures(world: &World) -> u64 {
    RoundsOf::ALL.into_iter().map(|of| world.engine.rounds().failures(of)).sum()
}

#[test]
fn attempts_are_reclaimed_by_the_server_that_leads_now() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    // It falls silent.
    two.one.worker(1).take();
    for _ in 0..9 {
        two.one.pass(1_000);
        two.one.be_heard();
    }
    two.take_over();
    let before = two.versions(&[id]);
    two.one.pass(2_900);
    assert_eq!((two.versions(&[id]), failures(&two.one)), (before, 0));
    two.other.end();
    two.one.be_heard();
    two.one.pass(100);
    assert_eq!(two.one.task(id).state.steps[0].forward.deaths, 1);
}

#[test]
fn messages_whose_sender_has_died_are_delivered_by_the_server_that_leads_now() {
    let two = Two::new();
    two.one.apply(Flow { on_failure: OnFailure::Hold, ..flow("f", &["a"], 0) });
    two.one.submit("f");
    let dead = World::over(Arc::new(two.store.clone()), 3);
    let mut worker = dead.worker(2);
    let token = worker.take().token;
    let reports = vec![WorkerReport { token, said: Ok(failed("no")), logs: Vec::new() }];
    let call = Exchange { holding: None, claim_requests: None, reports, ..worker.call(0) };
    dead.drive_no_further(dead.engine.exchange(call, dead.now())).unwrap();
    assert_eq!(two.messages(), 1, "the alarm is on its way");
    two.take_over();
    two.one.pass(2_900);
    assert_eq!((two.messages(), failures(&two.one)), (1, 0));
    two.other.pass(600);
    assert_eq!(two.messages(), 0);
}

#[test]
fn a_server_that_was_refused_stands_by_until_it_has_the_lease_again() {
    let two = Two::new();
    let retried = to_be_tried_again(&two.one);
    two.one.be_away_unserved(1_100);
    two.take_over();
    let timekeeper = Timekeeper::new(two.one.engine.clone());
    let round = || two.one.drive(timekeeper.run_once(two.one.now())).unwrap();
    let batches = || two.one.engine.counts().batches();
    let before = batches();
    assert_eq!((round(), batches()), (0, before + 1), "it asked the store");
    assert_eq!((round(), batches()), (0, before + 1), "it knows now");
    two.other.end();
    assert_eq!((round(), batches()), (0, before + 1), "it did not ask for the lease yet");
    two.one.be_heard();
    assert_eq!((round(), batches()), (1, before + 2));
    assert_eq!(two.one.task(retried).state.steps[0].forward.attempt, 2);
}

#[test]
fn others_in_the_same_batch_are_not_refused() {
    let two = Two::new();
    let retried = to_be_tried_again(&two.one);
    let mut worker = two.one.worker(1);
    let done = two.one.submit("retried");
    let token = worker.take().token;
    two.one.be_away_unserved(1_100);
    two.take_over();
    let before = two.versions(&[retried]);
    let timekeeper = Timekeeper::new(two.one.engine.clone());
    let (engine, now) = (&two.one.engine, two.one.now());
    let input = Input::new(Json::parse("{}").unwrap(), now.wall);
    let reports = vec![WorkerReport { token, said: Ok(ok()), logs: Vec::new() }];
    let call = Exchange { holding: None, claim_requests: None, reports, ..worker.call(0) };
    let others = join(engine.submit(submission("retried", input), now), engine.exchange(call, now));
    let batches = engine.counts().batches();
    let (round, (submitted, reported)) = two.one.drive(join(timekeeper.run_once(now), others));
    assert_eq!(engine.counts().batches(), batches + 1, "they were in one batch");
    assert_eq!(round.unwrap(), 0);
    let new = submitted.unwrap().loaded.task.id;
    assert!(two.versions(&[new])[0].is_some());
    assert_eq!(reported.unwrap().reports.len(), 1);
    assert!(two.one.task(done).is_ended());
    assert_eq!(two.versions(&[retried]), before);
}

#[test]
fn nothing_is_deleted_by_a_server_that_was_paused() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    let mut worker = two.one.worker(1);
    let attempt = worker.take();
    worker.report(&attempt.token, ok());
    let retention = Retention {
        tasks: Millis(0),
        logs: Millis(0),
        audit: Millis(0),
        keeps_unannounced: false,
        messages_until: None,
    };
    let sweep = |world: &World| {
        let janitor = Janitor::new(world.engine.clone(), retention, || Millis(0));
        world.drive(janitor.run_once(world.now())).unwrap()
    };
    two.take_over();
    assert_eq!(sweep(&two.one), 0);
    assert!(two.versions(&[id])[0].is_some() && failures(&two.one) == 0);
    assert_eq!(sweep(&two.other), 1);
    assert_eq!(two.versions(&[id]), [None]);
}

/// Names the events.
struct Numbers;

impl WriteEvent for Numbers {
    fn announcement(&self, task: &Task, n: u64, _event: &Event) -> Announcement {
        let message = Message::new(format!("{}/{n}", task.id), task.id.to_string(), "");
        Announcement { subject: "event".to_owned(), message }
    }
}

/// What it sends cannot be taken back, and so it may be announced twice.
#[test]
fn an_outbox_is_emptied_by_the_server_that_leads_now() {
    let two = Two::new();
    let broker = TestBroker::new(1, 0);
    let topic = || Topic { name: "events".to_owned(), kind: None, keep: 1 };
    let relay = |world: &World| {
        let topic = TopicSubscriber::new(broker.clone(), Arc::new(Numbers), topic());
        OutboxRelay::new(world.engine.clone(), vec![Arc::new(topic)])
    };
    let (of_one, of_other) = (relay(&two.one), relay(&two.other));
    two.one.be_heard();
    two.one.apply(flow("f", &["a"], 0));
    two.one.submit("f");
    let waiting = || block_on(two.store.unannounced(TaskId::NONE, 10)).unwrap().len();
    let announce = |world: &World, relay: &OutboxRelay| -> Result<Millis, EngineError> {
        world.drive(relay.run_once(|| world.now()))
    };
    two.take_over();
    assert_eq!(waiting(), 1);
    announce(&two.one, &of_one).unwrap();
    assert_eq!(waiting(), 1, "its successor does not know what it has announced");
    announce(&two.other, &of_other).unwrap();
    assert_eq!(waiting(), 0);
}
