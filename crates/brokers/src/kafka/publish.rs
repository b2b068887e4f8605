//! Sends messages, and waits until all replicas are written.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use rdkafka::{
    error::KafkaError,
    producer::{DeliveryFuture, FutureProducer, Producer as _},
    types::RDKafkaErrorCode as Code,
};

use crate::{
    BrokerError, Message, Queue,
    kafka::{address::Address, failure, reason::Reason, record, settings, topics::Topics},
};

/// How long to wait for room among the messages in flight.
const ROOM_MAX: Duration = Duration::from_secs(10);

/// The interval of the checks for room.
const LOOK_EVERY: Duration = Duration::from_millis(5);

type Outcome = Result<(), BrokerError>;

/// Sends all messages of this client.
pub(super) struct Publisher {
    address: Arc<Address>,
    topics: Arc<Topics>,
    producer: Mutex<Option<FutureProducer<Reason>>>,
    reason: Reason,
}

impl Publisher {
    pub(super) fn new(address: Arc<Address>, topics: Arc<Topics>) -> Self {
        Self { address, topics, producer: Mutex::default(), reason: Reason::default() }
    }

    /// Sends all messages, and returns the outcome of each.
    pub(super) async fn publish(&self, queue: &Queue, messages: &[&Message]) -> Vec<Outcome> {
        let producer = match self.topics.declare(queue).await {
            Ok(()) => self.producer(queue),
            Err(error) => Err(error),
        };
        let producer = match producer {
            Ok(producer) => producer,
            Err(error) => return vec![Err(error); messages.len()],
        };
        let mut under_way = Vec::with_capacity(messages.len());
        for message in messages {
            under_way.push(send(&producer, queue, message).await);
        }
        let mut outcomes = Vec::with_capacity(messages.len());
        for delivery in under_way {
            outcomes.push(match delivery {
                Ok(delivery) => self.outcome(queue, delivery).await,
                Err(error) => Err(error),
            });
        }
        if outcomes.iter().flat_map(Result::as_ref).count() < messages.len()
            && producer.client().fatal_error().is_some()
        {
            // This producer cannot send any more.
            *self.lock() = None;
        }
        outcomes
    }

    async fn outcome(&self, queue: &Queue, delivery: DeliveryFuture) -> Outcome {
        let error = match delivery.await {
            Ok(Ok(sent)) => {
                self.reason.forget();
                self.topics.note(queue, sent.partition, sent.offset);
                return Ok(());
            }
            Ok(Err((error, _))) => self.reason.explain(queue, &error),
            Err(_) => BrokerError::Failed("the producer was closed".to_owned()),
        };
        if error.is_passing() {
            // After such a long failure the topic may no longer exist.
            self.topics.doubt(queue);
        }
        Err(error)
    }

    fn producer(&self, queue: &Queue) -> Result<FutureProducer<Reason>, BrokerError> {
        let mut producer = self.lock();
        if let Some(producer) = &*producer {
            return Ok(producer.clone());
        }
        let made = settings::of_producer(&self.address).create_with_context(self.reason.clone());
        Ok(producer.insert(made.map_err(|error| failure::of(queue, &error))?).clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<FutureProducer<Reason>>> {
        self.producer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Starts to send one message.
async fn send(
    producer: &FutureProducer<Reason>,
    queue: &Queue,
    message: &Message,
) -> Result<DeliveryFuture, BrokerError> {
    record::check(message)?;
    let until = Instant::now() + ROOM_MAX;
    loop {
        match producer.send_result(record::record(&queue.name, message)) {
            Ok(delivery) => return Ok(delivery),
            Err((KafkaError::MessageProduction(Code::QueueFull), _)) if Instant::now() < until => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Err((error, _)) => return Err(failure::of(queue, &error)),
        }
    }
}
