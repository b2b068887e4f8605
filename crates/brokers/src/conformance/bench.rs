//! Shared by the cases: their own queue, and helpers for it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Broker, BrokerError, Consumer, ConsumerSettings, Delivery, Message, Queue, Receipt,
    conformance::{Promises, Subject},
};

/// The time limit where no other applies. A group that rebalances a queue takes seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The queue of one case.
pub(super) struct Bench<'s> {
    pub(super) subject: &'s dyn Subject,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) queue: Queue,
    pub(super) promises: Promises,
}

impl<'s> Bench<'s> {
    pub(super) fn new(subject: &'s dyn Subject, case: &str) -> Self {
        let case = case.rsplit("::").next().unwrap_or_default().replace('_', "-");
        let name = format!("{}-{:08x}", &case[..case.len().min(50)], fastrand::u32(..));
        Self { subject, broker: subject.connect(), queue: subject.queue(&name), promises: subject.promises() }
    }

    /// Messages with these numbers as bodies, each with its own key.
    pub(super) fn messages(numbers: std::ops::Range<u32>) -> Vec<Message> {
        numbers.map(|number| message(&number.to_string(), &format!("key-{number}"))).collect()
    }

    /// Publishes messages, which must all be confirmed.
    pub(super) async fn publish(&self, messages: &[Message]) {
        let outcomes = self.broker.publish(&self.queue, messages).await;
        assert_eq!(outcomes.len(), messages.len(), "there is one outcome per message");
        for (message, outcome) in messages.iter().zip(outcomes) {
            assert_eq!(outcome, Ok(()), "{}", text(message));
        }
    }

    /// The group of all consumers.
    pub(super) fn group(&self) -> &'static str {
        "windlass"
    }

    pub(super) fn settings(&self, in_hands_max: usize) -> ConsumerSettings {
        ConsumerSettings {
            binding: None,
            group: self.group().to_owned(),
            name: "conformance".to_owned(),
            in_hands_max,
            silent_after: self.promises.silent_after,
        }
    }

    /// A consumer of the queue with a high limit of messages in flight.
    pub(super) async fn consumer(&self) -> Box<dyn Consumer> {
        self.consumer_of(&self.queue, 10_000).await
    }

    pub(super) async fn consumer_of(&self, queue: &Queue, in_hands_max: usize) -> Box<dyn Consumer> {
        self.broker.consume(queue, &self.settings(in_hands_max)).await.expect("the broker lets us consume")
    }

    /// Receives the next message and acknowledges it.
    pub(super) async fn take_one(&self, consumer: &mut dyn Consumer) -> Delivery {
        let delivery = receive(consumer, 1).await.remove(0);
        consumer.acknowledge(std::slice::from_ref(&delivery.receipt)).await.expect("it is acknowledged");
        delivery
    }

    /// Waits until the broker answers queries.
    pub(super) async fn broker_answers(&self) {
        let until = Instant::now() + PATIENCE;
        while let Err(error) = self.broker.look(&self.queue).await {
            assert!(Instant::now() < until, "the broker answers within {PATIENCE:?}");
            if !matches!(error, BrokerError::NoQueue(_)) {
                pause_after(&error).await;
            }
        }
    }

    /// Waits long enough for any redelivery, and checks that there is none.
    pub(super) async fn nothing_comes(&self, consumer: &mut dyn Consumer) {
        self.nothing_comes_within(consumer, self.promises.silent_after * 2 + Duration::from_secs(1)).await;
    }

    /// Waits for this time, and checks that no message comes.
    pub(super) async fn nothing_comes_within(&self, consumer: &mut dyn Consumer, wait: Duration) {
        let came = receive_for(consumer, wait).await;
        assert_eq!(bodies(&came), [""; 0], "nothing comes any more");
    }
}

/// A message with this text.
pub(super) fn message(text: &str, key: &str) -> Message {
    Message::new(format!("id-{text}"), key, text.to_owned())
}

/// The text of a message.
pub(super) fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.body).into_owned()
}

/// The texts of these messages.
pub(super) fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| text(&delivery.message)).collect()
}

pub(super) fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
    deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
}

/// Receives exactly this number of messages.
pub(super) async fn receive(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let until = Instant::now() + PATIENCE;
    let mut received = Vec::new();
    while received.len() < count {
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "{} of {count} came within {PATIENCE:?}", received.len());
        let max = count - received.len();
        let more = consumer.receive(max, left).await.expect("the broker answers");
        assert!(more.len() <= max, "no more come than are wanted");
        received.extend(more);
    }
    received
}

/// Receives all messages that arrive within this time.
pub(super) async fn receive_for(consumer: &mut dyn Consumer, wait: Duration) -> Vec<Delivery> {
    let until = Instant::now() + wait;
    let mut received = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        received.extend(consumer.receive(1_000, left).await.expect("the broker answers"));
        if left.is_zero() {
            return received;
        }
    }
}

/// Acknowledges all messages until each of the wanted ones has arrived at least once. Returns how often each
/// arrived. Ignores errors of the broker: it may be unavailable.
pub(super) async fn drain(consumer: &mut dyn Consumer, wanted: &[String]) -> BTreeMap<String, u32> {
    let until = Instant::now() + PATIENCE;
    let mut came = BTreeMap::new();
    loop {
        let missing = wanted.iter().filter(|body| !came.contains_key(*body)).count();
        if missing == 0 {
            return came;
        }
        assert!(Instant::now() < until, "{missing} of {} did not come within {PATIENCE:?}", wanted.len());
        match take_some(consumer).await {
            Ok(taken) => taken.into_iter().for_each(|body| *came.entry(body).or_default() += 1),
            Err(error) => pause_after(&error).await,
        }
    }
}

async fn take_some(consumer: &mut dyn Consumer) -> Result<Vec<String>, BrokerError> {
    let some = consumer.receive(500, Duration::from_secs(1)).await?;
    // A message that cannot be acknowledged is delivered again, which is harmless here.
    let _ = consumer.acknowledge(&receipts(&some)).await;
    Ok(bodies(&some))
}

/// Pauses before the next attempt; the error must be temporary.
pub(super) async fn pause_after(error: &BrokerError) {
    assert!(error.is_passing(), "the broker is only unavailable: {error}");
    tokio::time::sleep(Duration::from_millis(50)).await;
}
