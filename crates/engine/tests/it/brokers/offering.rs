//! What is offered on a broker, and who may begin it.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use windlass_brokers::{Message, Queue};
use windlass_core::Name;
use windlass_engine::{
    HandedOut, ReportStatus, Said, WorkerReport,
    services::{QueuePublisher, QueuePublisherSettings, WriteStep},
};
use windlass_store::memory::MemorySink;

use crate::{
    brokers::TestBroker,
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

fn publisher(world: &World, broker: &Arc<TestBroker>, chance: u64) -> QueuePublisher {
    publisher_at(world, broker, "m", chance)
}

fn publisher_at(world: &World, broker: &Arc<TestBroker>, queue: &str, chance: u64) -> QueuePublisher {
    let settings = QueuePublisherSettings {
        module: Name::new("m").unwrap(),
        queue: Queue::new(queue),
        results: Queue::new("results"),
        window: 10,
    };
    QueuePublisher::new(world.engine.clone(), broker.clone(), Arc::new(Tokens), settings, chance)
}

#[test]
fn who_runs_what_was_offered_first_does_not_begin_it_again_when_it_is_offered_anew() {
    let world = World::new();
    let broker = TestBroker::new(1, 0);
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let first = publisher(&world, &broker, 1);
    world.drive(first.run_once(world.now())).unwrap();
    // The first queue publisher is gone, and by its configuration the server offers in another queue.
    let second = publisher_at(&world, &broker, "other", 2);
    world.pass(60_000);
    world.drive(second.run_once(world.now())).unwrap();
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

/// Lets time pass, in which the queue publisher has a round each second.
fn rounds(world: &World, publisher: &QueuePublisher, seconds: u32) {
    for _ in 0..seconds {
        world.pass(1_000);
        world.drive(publisher.run_once(world.now())).unwrap();
    }
}

/// Three tasks are offered, and their tokens.
fn three_offered() -> (World, Arc<TestBroker>, QueuePublisher, Vec<String>) {
    let world = World::new();
    let broker = TestBroker::new(1, 0);
    world.apply(flow("f", &["a"], 0));
    for _ in 0..3 {
        world.submit("f");
    }
    let publisher = publisher(&world, &broker, 1);
    world.drive(publisher.run_once(world.now())).unwrap();
    let tokens = broker.published.lock().unwrap().clone();
    assert_eq!(tokens.len(), 3);
    (world, broker, publisher, tokens)
}

#[test]
fn acknowledged_messages_whose_answers_wait_to_be_read_are_not_sent_again() {
    let (world, broker, publisher, tokens) = three_offered();
    // A module has done all three and said so; before its answers there are others, which take long to read.
    broker.gone.store(3, Relaxed);
    broker.answered.store(53, Relaxed);
    for read in 0..50 {
        broker.read.store(read, Relaxed);
        rounds(&world, &publisher, 2);
    }
    assert_eq!(broker.published.lock().unwrap().len(), 3, "nothing is lost as far as the engine knows");
    assert_eq!(hear(&world, &tokens, &ok()), [const { ReportStatus::Accepted }; 3]);
    broker.read.store(53, Relaxed);
    rounds(&world, &publisher, 60);
    assert_eq!(broker.published.lock().unwrap().len(), 3);
}

#[test]
fn what_the_broker_lost_is_sent_again_under_the_same_token_once_the_answers_are_read() {
    let (world, broker, publisher, tokens) = three_offered();
    rounds(&world, &publisher, 20);
    assert_eq!(broker.published.lock().unwrap().len(), 3, "the broker has them");
    broker.gone.store(3, Relaxed);
    broker.answered.store(5, Relaxed);
    rounds(&world, &publisher, 20);
    assert_eq!(broker.published.lock().unwrap().len(), 3, "answers are unread");
    broker.read.store(5, Relaxed);
    rounds(&world, &publisher, 20);
    let published = broker.published.lock().unwrap().clone();
    assert_eq!(published.len(), 6, "each is sent again once");
    let distinct: BTreeSet<&String> = published.iter().collect();
    assert_eq!(distinct, tokens.iter().collect(), "under the token that it had");
}

#[test]
fn a_step_whose_module_takes_its_messages_and_never_answers_waits_for_an_operator() {
    let (world, broker, publisher, tokens) = three_offered();
    // The module answers for two tasks, and never for the third one.
    hear(&world, &tokens[1..], &ok());
    for _ in 0..400 {
        broker.gone.store(broker.published.lock().unwrap().len() as u64, Relaxed);
        rounds(&world, &publisher, 1);
    }
    let published = broker.published.lock().unwrap().clone();
    let of_third: Vec<&String> = published.iter().filter(|token| !tokens[1..].contains(token)).collect();
    assert_eq!(of_third.len(), 9, "three messages for each of three attempts");
    assert_eq!(of_third.into_iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(published.len(), 11, "the others are sent once");
    let alarms = world.drive(world.engine.alarms(false, 10)).unwrap();
    assert_eq!(alarms.len(), 1);
    assert!(alarms[0].message.contains("step a is poisoned"), "{}", alarms[0].message);
    assert!(alarms[0].message.contains("gave no answer 3 times"), "{}", alarms[0].message);
}

#[test]
fn a_broker_that_is_back_gets_new_attempts_while_nobody_takes_the_earlier_ones() {
    let (world, broker, publisher, _) = three_offered();
    broker.is_unreachable.store(true, Relaxed);
    world.submit("f");
    rounds(&world, &publisher, 30);
    assert_eq!(broker.published.lock().unwrap().len(), 3);
    broker.is_unreachable.store(false, Relaxed);
    rounds(&world, &publisher, 30);
    assert_eq!(broker.published.lock().unwrap().len(), 4, "each is there once");
}

/// A worker does what these tokens name, as modules do that know their broker alone.
fn hear(world: &World, tokens: &[String], said: &Said) -> Vec<ReportStatus> {
    let report =
        |token: &String| WorkerReport { token: token.clone(), said: Ok(said.clone()), logs: Vec::new() };
    let reports = tokens.iter().map(report).collect();
    let answers = world.drive(world.engine.hear_from_afar(reports, world.now())).unwrap();
    answers.into_iter().map(|answer| answer.status).collect()
}

/// A server is ended in order, or killed, and another one follows on its disk.
fn offered_over_a_restart(in_order: bool) {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    let broker = TestBroker::new(1, 0);
    world.apply(flow("f", &["a"], 0));
    for _ in 0..3 {
        world.submit("f");
    }
    world.drive(world.engine.begin_hearing_from_afar(world.now())).unwrap();
    let first = publisher(&world, &broker, 1);
    world.drive(first.run_once(world.now())).unwrap();
    let tokens = broker.published.lock().unwrap().clone();
    assert_eq!(tokens.len(), 3);
    // One is being done by a module that answers over the broker, and its message is still in flight.
    assert_eq!(hear(&world, &tokens[..1], &Said::Running(None)), [ReportStatus::Accepted]);
    world.submit("f");
    if in_order {
        world.drive(first.end(world.now())).unwrap();
    }
    drop((first, world));
    let world = World::open(&sink);
    world.drive(world.engine.begin_hearing_from_afar(world.now())).unwrap();
    let second = publisher(&world, &broker, 2);
    rounds(&world, &second, 60);
    let published = broker.published.lock().unwrap().clone();
    assert_eq!(published.len(), 4, "nothing is sent again, and what was not sent goes out");
    let mut worker = world.worker(1);
    assert_eq!(worker.report(&tokens[1], Said::Running(None)), ReportStatus::Accepted);
    assert_eq!(
        worker.report(&tokens[1], ok()),
        ReportStatus::Accepted,
        "under the token that went out before"
    );
    assert_eq!(hear(&world, &tokens[..1], &ok()), [ReportStatus::Accepted], "it has run through");
    rounds(&world, &second, 60);
    assert_eq!(broker.published.lock().unwrap().len(), 4);
}

#[test]
fn what_is_offered_stays_offered_when_the_server_is_ended_in_order() {
    offered_over_a_restart(true);
}

#[test]
fn what_is_offered_stays_offered_when_the_server_is_killed() {
    offered_over_a_restart(false);
}

#[test]
fn what_was_claimed_and_not_sent_when_the_server_was_killed_is_sent() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    let broker = TestBroker::new(1, 0);
    world.apply(flow("f", &["a"], 0));
    for _ in 0..3 {
        world.submit("f");
    }
    world.drive(publisher(&world, &broker, 1).run_once(world.now())).unwrap();
    drop(world);
    // As if the last of them had not gone out.
    let unsent = broker.published.lock().unwrap().pop().unwrap();
    let world = World::open(&sink);
    let second = publisher(&world, &broker, 2);
    rounds(&world, &second, 20);
    let published = broker.published.lock().unwrap().clone();
    assert_eq!((published.len(), published.last()), (3, Some(&unsent)), "it alone is sent, under its token");
}
