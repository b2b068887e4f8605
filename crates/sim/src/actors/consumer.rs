//! One-way modules: they receive steps from a broker and send their results there. They cannot ask a server
//! whether a step should still run.

use std::{
    rc::Rc,
    sync::{Arc, Mutex},
};

use windlass_brokers::Queue;
use windlass_core::{Failure, Name, Outcome};
use windlass_engine::{
    HandedOut, Said, WorkerReport, effect_key, loops,
    services::{QueuePublisher, QueuePublisherSettings},
};

use super::Live;
use crate::{
    flows::{BROKER_MODULE, result_of},
    judge::Seen,
    stores::{Queues, QueuesThere, Steps},
    world::{Device, Host, World},
};

/// The pause after a failed round, and between two checks for results.
const PAUSE_MS: u64 = 200;

/// The most results read in one round.
const ROUND_MAX: usize = 50;

/// The number of consumers.
const CONSUMERS: usize = 2;

/// The first number of a consumer, above those of all operators.
const FIRST: usize = 20;

/// Starts the consumers.
pub(crate) fn start_consumers(world: &Rc<World>) {
    for index in 0..CONSUMERS {
        world.spawn(Host::Person(FIRST + index), consume(world.clone()));
    }
}

async fn consume(world: Rc<World>) {
    let queues = world.queues.clone();
    loop {
        let Some(attempt) = queues.take() else {
            world.sleep(world.within(20..=400)).await;
            continue;
        };
        let is_done = run(&world, &queues, &attempt).await;
        queues.settle(&attempt.token, is_done);
    }
}

/// Runs a step and sends its result. False if the consumer ends before that, so that the broker redelivers
/// the step. Steps of some tasks are never answered.
async fn run(world: &Rc<World>, queues: &Queues, attempt: &HandedOut) -> bool {
    let is_calm = world.is_calm();
    let answer =
        |said| queues.answer(WorkerReport { token: attempt.token.clone(), said: Ok(said), logs: Vec::new() });
    let outcomes = &world.config.outcomes;
    if !is_calm && attempt.id.task.0 % 1000 < u128::from(12 * outcomes.kills) {
        world.count("one-way module: never answers");
        return true;
    }
    if world.chance(500) {
        answer(Said::Running(None));
    }
    if !is_calm && world.chance(40) {
        world.count("one-way module: ends before the step");
        return false;
    }
    world.sleep(world.within(0..=if is_calm { 50 } else { 1500 })).await;
    world.see(Seen::Effect { id: attempt.id, key: effect_key(&attempt.task, attempt.id.key) });
    if !is_calm && world.chance(40) {
        world.count("one-way module: ends before its answer");
        return false;
    }
    let outcome = match world.below(1000) {
        drawn if !is_calm && drawn < outcomes.fails => Outcome::Failed(Failure::new("no", 1, true)),
        drawn if !is_calm && drawn < outcomes.fails + outcomes.fails_for_good => {
            Outcome::Failed(Failure::new("never", 2, false))
        }
        _ => Outcome::Succeeded(result_of(world.random())),
    };
    world.count("one-way module: answers");
    answer(Said::Ended(outcome));
    is_calm || !world.chance(40)
}

/// Publishes steps to the broker and reads the results, like a server.
pub(super) fn begin(world: &Rc<World>, server: usize, live: &Rc<Live>) {
    let Some(publisher) = publisher(world, live) else { return };
    world.spawn(Host::Server(server), loops::offer(Arc::new(publisher), live.engine.clone(), live.clone()));
    world.spawn(Host::Server(server), hear(world.clone(), live.clone()));
}

fn publisher(world: &Rc<World>, live: &Live) -> Option<QueuePublisher> {
    let device = Device::default();
    world.add_device(device.clone());
    let dice = Mutex::new(fastrand::Rng::with_seed(world.random()));
    let losses = world.config.announcements_lost;
    let there = QueuesThere { queues: world.queues.clone(), device, dice, losses };
    let settings = QueuePublisherSettings {
        module: Name::new(BROKER_MODULE).ok()?,
        queue: Queue::new(BROKER_MODULE),
        results: Queue::new("results"),
        window: u32::try_from(world.within(2..=20)).unwrap_or(2),
    };
    let steps = Steps(world.queues.clone());
    Some(QueuePublisher::new(live.engine.clone(), Arc::new(there), Arc::new(steps), settings, world.random()))
}

async fn hear(world: Rc<World>, live: Rc<Live>) {
    while live.engine.begin_hearing_from_afar(live.now()).await.is_err() {
        world.sleep(PAUSE_MS).await;
    }
    loop {
        let answers = world.queues.answers(ROUND_MAX);
        let (numbers, reports): (Vec<u64>, Vec<WorkerReport>) = answers.into_iter().unzip();
        if !reports.is_empty() && live.engine.hear_from_afar(reports, live.now()).await.is_ok() {
            world.queues.heard(&numbers);
            continue;
        }
        world.sleep(PAUSE_MS).await;
    }
}
