//! Kafka: topics with consumer groups, through librdkafka.
//!
//! A topic is divided into partitions, and a group divides them among its consumers. The group stores one
//! offset per partition: everything before it is done. The consumer adds the operations on single messages
//! that other brokers offer:
//!
//! - `ledger.rs` tracks arrived messages, and commits no further than the earliest message that is not done;
//! - messages given back are handed out again by the same consumer, since Kafka cannot take them back;
//! - a partition that the group reassigns leaves once its messages in flight are settled, or after its
//!   consumer has been silent for too long (`member.rs`).
//!
//! | file | concern |
//! |---|---|
//! | `address.rs` | the URL |
//! | `settings.rs` | the settings of the library |
//! | `reason.rs` | why a client has no connection |
//! | `topics.rs` | creates topics and reads their state |
//! | `publish.rs` | sends, and waits until all replicas are written |
//! | `member.rs` | one member of a group |
//! | `shared.rs` | state shared by member and consumer |
//! | `consumer.rs` | hands out and settles messages |
//! | `record.rs` | converts messages to records |
//! | `failure.rs` | maps errors |

mod address;
mod consumer;
mod failure;
mod ledger;
mod member;
mod publish;
mod reason;
mod record;
mod settings;
mod shared;
mod topics;

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, Look, Message, Progress, Queue, Topic,
    kafka::{
        address::Address, consumer::QueueConsumer, publish::Publisher, record::MESSAGE_BYTES_MAX,
        topics::Topics,
    },
};

/// A Kafka cluster.
///
/// A queue is a topic, and messages with the same key keep their order. There are no kinds of queues.
pub struct Kafka {
    address: Arc<Address>,
    topics: Arc<Topics>,
    publisher: Publisher,
}

impl Kafka {
    /// Makes a client of the cluster at `kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]`, which names some of
    /// its servers, or at `kafkas://` for TLS. Parameters after a `?`: `cacert`, a file with the CA
    /// certificates to trust in place of the system's; `cert` and `key`, files with the client certificate and its
    /// private key; `sasl`, the login mechanism; `partitions` and `replicas` of new topics; and `group`,
    /// the group whose progress is shown for a topic. Does not connect yet.
    ///
    /// Its methods must be called within a Tokio runtime.
    ///
    /// # Errors
    /// When the URL is invalid, or a file cannot be used.
    pub fn new(url: &str) -> Result<Self, BrokerError> {
        let address = Arc::new(Address::parse(url)?);
        let topics = Arc::new(Topics::new(Arc::clone(&address)));
        let publisher = Publisher::new(Arc::clone(&address), Arc::clone(&topics));
        Ok(Self { address, topics, publisher })
    }
}

#[async_trait]
impl Broker for Kafka {
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
        topics::check(queue)
    }

    fn check_topic(&self, topic: &Topic) -> Result<(), BrokerError> {
        topics::check(&topic.as_queue())
    }

    async fn declare(&self, queue: &Queue) -> Result<(), BrokerError> {
        self.topics.declare(queue).await
    }

    async fn publish(&self, queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
        self.publisher.publish(queue, &messages.iter().collect::<Vec<_>>()).await
    }

    async fn announce(&self, topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>> {
        // A topic differs from a queue only in its readers: each subscriber has its own group.
        let messages: Vec<&Message> = announcements.iter().map(|said| &said.message).collect();
        self.publisher.publish(&topic.as_queue(), &messages).await
    }

    async fn look(&self, queue: &Queue) -> Result<Look, BrokerError> {
        self.topics.look(queue).await
    }

    async fn progress(&self, queue: &Queue, group: &str) -> Result<Progress, BrokerError> {
        self.topics.progress(queue, group).await
    }

    async fn consume(
        &self,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        let (address, topics) = (Arc::clone(&self.address), Arc::clone(&self.topics));
        Ok(Box::new(QueueConsumer::open(address, topics, queue.clone(), settings.clone()).await?))
    }
}
