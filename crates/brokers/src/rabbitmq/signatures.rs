//! Signatures of the Go library machinery on RabbitMQ.
//!
//! | name | what it is |
//! |---|---|
//! | the exchange of the clients | where signatures are sent; their routing key names a queue, or a binding |
//! | `delay.MS.EXCHANGE.KEY` | queue of signatures that go to `KEY` after this time. The server moves and removes it itself |

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use lapin::{
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};

use super::{
    address::Address,
    exchanges::{Exchange, Way},
    kind::{self, PLAIN},
    link::{Link, answer},
    publish::Publisher,
    queues,
    target::{Letter, Target},
};
use crate::{Binding, BrokerError, Message, Queue, SignatureBroker, machinery::time_left};

/// The longest time that a queue of delayed signatures can have, in milliseconds: it is removed after twice this time.
const DELAY_MAX: u64 = u32::MAX as u64 / 2 - 1;

/// A RabbitMQ server to which clients of machinery send signatures.
pub(crate) struct Signatures {
    asking: Arc<Link>,
    publisher: Publisher,
    exchange: Exchange,
}

impl Signatures {
    /// Makes a client of a server by its URL, without connecting.
    pub(crate) fn open(url: &str, exchange: &str) -> Result<Self, BrokerError> {
        let address = Arc::new(Address::parse(url)?);
        let exchange = Exchange { name: exchange.to_owned(), way: Way::Direct };
        exchange.short_name()?;
        let asking = Link::new(Arc::clone(&address), "asking about signatures");
        let sending = Link::new(address, "sending signatures");
        Ok(Self { publisher: Publisher::new(sending, Arc::clone(&asking)), asking, exchange })
    }

    /// The queue of signatures that are sent to `key` after this time.
    fn delay_queue(&self, key: &str, ms: u64) -> Queue {
        Queue::new(format!("delay.{ms}.{}.{key}", self.exchange.name))
    }

    /// Creates what a routing key needs, as clients do: a queue of the same name.
    async fn create(&self, key: &str) -> Result<(), BrokerError> {
        let queue = Queue { name: key.to_owned(), kind: Some(PLAIN.to_owned()) };
        queues::declare(&self.asking, &queue).await?;
        let binding = Binding { exchange: self.exchange.name.clone(), key: key.to_owned() };
        queues::bind(&self.asking, &queue, &binding).await
    }

    /// Creates the queue of signatures that are sent to `key` after this time.
    async fn create_delay(&self, queue: &Queue, key: &str, ms: u64) -> Result<(), BrokerError> {
        let mut arguments = FieldTable::default();
        let text = |text: &str| AMQPValue::LongString(text.into());
        let number = |ms: u64| AMQPValue::LongLongInt(ms.try_into().unwrap_or(i64::MAX));
        arguments.insert("x-dead-letter-exchange".into(), text(&self.exchange.name));
        arguments.insert("x-dead-letter-routing-key".into(), text(key));
        arguments.insert("x-message-ttl".into(), number(ms));
        arguments.insert("x-expires".into(), number(ms * 2));
        let (_line, channel) = self.asking.channel().await?;
        let name = kind::name(queue)?;
        let declared = channel.queue_declare(name, QueueDeclareOptions::durable(), arguments);
        answer(Some(&queue.name), declared).await.map(drop)
    }
}

#[async_trait]
impl SignatureBroker for Signatures {
    fn queue_kind(&self) -> Option<&'static str> {
        Some(PLAIN)
    }

    fn has_exchange(&self) -> bool {
        true
    }

    fn check(&self, queue: &str, at: Option<i64>) -> Result<(), BrokerError> {
        kind::name(&Queue::new(queue))?;
        at.and_then(ms_until).map_or(Ok(()), |ms| kind::name(&self.delay_queue(queue, ms)).map(drop))
    }

    async fn send(&self, queue: &str, signature: &str, at: Option<i64>) -> Result<(), BrokerError> {
        let message =
            Message::new("", "", signature.to_owned()).with_header("content-type", "application/json");
        let publish = async |target: &Target, subject: &str| {
            let outcomes = self.publisher.publish_to_existing(target, &[Letter::to(subject, &message)]).await;
            outcomes.into_iter().next().unwrap_or(Ok(()))
        };
        let to_exchange = Target::Exchange(self.exchange.clone());
        if let Some(ms) = at.and_then(ms_until) {
            // Where it goes then must be there.
            self.create(queue).await?;
            let delay = self.delay_queue(queue, ms);
            // Each time: its time begins again.
            self.create_delay(&delay, queue, ms).await?;
            return publish(&Target::Queues, &delay.name).await;
        }
        match publish(&to_exchange, queue).await {
            Err(BrokerError::NoQueue(_)) => {
                self.create(queue).await?;
                publish(&to_exchange, queue).await
            }
            sent => sent,
        }
    }

    async fn move_due(&self, _default_queue: &str) -> Result<u64, BrokerError> {
        Ok(0)
    }
}

/// The time until `at`, in nanoseconds since 1970, in milliseconds; `None` = it is over.
fn ms_until(at: i64) -> Option<u64> {
    let ms = time_left(at, SystemTime::now(), Duration::from_millis(1));
    (ms > 0).then(|| ms.min(DELAY_MAX))
}
