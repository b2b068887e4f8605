//! RabbitMQ: quorum queues and classic queues, by AMQP 0-9-1.
//!
//! ```text
//!        publish, announce                   consume          declare, look
//!                │                              │                   │
//!   outlet.rs: a channel           opening.rs: a channel     queues.rs: a channel
//!   to each batch, confirms        to each consumer          to each call
//!                │                              └─────────┬─────────┘
//!          link "sending"                          link "receiving"
//! ```
//!
//! There are two connections because a server with nearly full memory or disk stops reading connections that
//! publish, with everything on them. Acknowledgements of workers must get through nevertheless: they free
//! space.
//!
//! After a lost connection, unconfirmed messages are reported as errors, since their fate is unknown, and
//! messages in flight go back to their queue. The next call connects again.

mod address;
mod consumer;
mod exchanges;
mod failure;
mod kind;
mod link;
mod opening;
mod outlet;
mod properties;
mod publish;
mod queues;
mod results;
mod signatures;
mod target;

pub(crate) use results::Results;
pub(crate) use signatures::Signatures;

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, Look, Message, Queue, Topic,
    rabbitmq::{
        address::Address,
        consumer::QueueConsumer,
        link::Link,
        publish::{MESSAGE_BYTES_MAX, Publisher},
        target::{Letter, Target},
    },
};

/// A RabbitMQ server, or a cluster behind one address.
///
/// Kinds of queues: `quorum`, the default, `single-active`, which is one with a single active consumer, `classic`, which
/// has priorities, and `plain`, which is declared without arguments. A topic is an exchange of the
/// kind `topic`, the default, or `fanout`; or one queue of either kind.
pub struct RabbitMq {
    address: Arc<Address>,
    receiving: Arc<Link>,
    sending: Arc<Link>,
    publisher: Publisher,
}

impl RabbitMq {
    /// Makes a client of the broker at `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://…` for TLS.
    /// Parameters after a `?`: `heartbeat`, in seconds; `cacert`, a file with the CA certificates to trust
    /// in place of the system's; `cert` and `key`, files with the certificate of this client and its private key.
    /// Does not connect yet.
    ///
    /// Its methods must be called within a Tokio runtime.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub fn new(url: &str) -> Result<Self, BrokerError> {
        let address = Arc::new(Address::parse(url)?);
        let receiving = Link::new(Arc::clone(&address), "receiving");
        let sending = Link::new(Arc::clone(&address), "sending");
        let publisher = Publisher::new(Arc::clone(&sending), Arc::clone(&receiving));
        Ok(Self { address, receiving, sending, publisher })
    }
}

#[async_trait]
impl Broker for RabbitMq {
    fn name(&self) -> &str {
        &self.address.name
    }

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn has_headers(&self, _queue: &Queue) -> bool {
        true
    }

    fn check(&self, queue: &Queue) -> Result<(), BrokerError> {
        kind::check(queue)
    }

    fn check_topic(&self, topic: &Topic) -> Result<(), BrokerError> {
        Target::of(topic)?.check()
    }

    async fn declare(&self, queue: &Queue) -> Result<(), BrokerError> {
        queues::declare(&self.receiving, queue).await
    }

    async fn publish(&self, queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
        let letters: Vec<Letter<'_>> = messages.iter().map(Letter::plain).collect();
        self.publisher.publish(&Target::Queue(queue.clone()), &letters).await
    }

    async fn announce(&self, topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>> {
        match Target::of(topic) {
            Ok(target) => {
                let letters: Vec<Letter<'_>> = announcements.iter().map(Letter::about).collect();
                self.publisher.publish(&target, &letters).await
            }
            Err(error) => vec![Err(error); announcements.len()],
        }
    }

    async fn look(&self, queue: &Queue) -> Result<Look, BrokerError> {
        queues::look(&self.receiving, queue).await
    }

    async fn consume(
        &self,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        Ok(Box::new(QueueConsumer::open(Arc::clone(&self.receiving), queue, settings).await?))
    }

    async fn disconnect(&self) {
        tokio::join!(self.receiving.close(), self.sending.close());
    }
}
