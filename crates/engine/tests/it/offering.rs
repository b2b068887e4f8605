//! What is offered on a broker, and who may begin it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use windlass_brokers::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, Look, Message, Queue, Topic,
};
use windlass_core::Name;
use windlass_engine::{
    HandedOut, ReportStatus, Said,
    services::{Courier, CourierSettings, WriteStep},
};

use crate::world::{World, flow, ok};

/// A queue that keeps what it is given.
#[derive(Default)]
struct Kept {
    tokens: Mutex<Vec<String>>,
}

impl Kept {
    fn token(&self, index: usize) -> String {
        self.tokens.lock().unwrap()[index].clone()
    }
}

#[async_trait]
impl Broker for Kept {
    fn name(&self) -> &str {
        "kept"
    }

    fn message_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn has_headers(&self, _queue: &Queue) -> bool {
        true
    }

    fn check(&self, _queue: &Queue) -> Result<(), BrokerError> {
        Ok(())
    }

    fn check_topic(&self, _topic: &Topic) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn declare(&self, _queue: &Queue) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn publish(&self, _queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
        self.tokens.lock().unwrap().extend(messages.iter().map(|message| message.id.clone()));
        vec![Ok(()); messages.len()]
    }

    async fn announce(
        &self,
        _topic: &Topic,
        _announcements: &[Announcement],
    ) -> Vec<Result<(), BrokerError>> {
        Vec::new()
    }

    async fn look(&self, _queue: &Queue) -> Result<Look, BrokerError> {
        let messages = self.tokens.lock().unwrap().len() as u64;
        Ok(Look { messages: Some(messages), counts_in_hands: true, identity: None })
    }

    async fn consume(
        &self,
        queue: &Queue,
        _settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        Err(BrokerError::NoQueue(queue.name.clone()))
    }
}

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

fn courier(world: &World, broker: &Arc<Kept>, chance: u64) -> Courier {
    let settings = CourierSettings { module: Name::new("m").unwrap(), queue: Queue::new("m"), window: 10 };
    Courier::new(world.engine.clone(), broker.clone(), Arc::new(Tokens), settings, chance)
}

#[test]
fn who_runs_what_was_offered_first_does_not_begin_it_again_when_it_is_offered_anew() {
    let world = World::new();
    let broker = Arc::<Kept>::default();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let first = courier(&world, &broker, 1);
    world.drive(first.run_once(world.now())).unwrap();
    // The first courier is gone, and another one follows.
    world.pass(60_000);
    world.drive(courier(&world, &broker, 2).run_once(world.now())).unwrap();
    let (early, late) = (broker.token(0), broker.token(1));
    assert_ne!(early, late);
    let mut worker = world.worker(1);
    assert!(worker.poll().attempts.is_empty(), "it is offered");
    assert_eq!(worker.report(&early, Said::Running(None)), ReportStatus::Accepted);
    worker.holding.push(early.clone());
    assert_eq!(worker.report(&late, Said::Running(None)), ReportStatus::Stale, "it runs already");
    assert_eq!(worker.report(&early, Said::Running(None)), ReportStatus::Accepted);
    assert_eq!(worker.report(&early, ok()), ReportStatus::Accepted);
}
