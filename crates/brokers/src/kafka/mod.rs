//! Kafka: topics with consumer groups, by librdkafka.
//!
//! A topic is divided into partitions, and a group divides a topic's partitions among its consumers. Of each partition the
//! group remembers one place, before which everything is done. What brokers for queues do per message is done on top of
//! that, in the consumer:
//!
//! - `ledger.rs` keeps what arrived, and commits no further than the earliest message that is not done;
//! - what is given back is handed out again here, since there is nowhere to give it to;
//! - a partition that the group gives to somebody else goes when what is in hands of it is settled, or when its holder was
//!   silent for too long (`member.rs`).
//!
//! | file | concern |
//! |---|---|
//! | `address.rs` | what a URL says |
//! | `settings.rs` | what the library is told of it |
//! | `reason.rs` | why a client has no connection |
//! | `topics.rs` | makes topics, and looks at them |
//! | `publish.rs` | sends, and waits for all copies to be made |
//! | `member.rs` | one member of a group, beside whoever waits for messages |
//! | `shared.rs` | what member and consumer both see |
//! | `consumer.rs` | hands out, and settles |
//! | `record.rs` | a message as Kafka has it |
//! | `failure.rs` | what is wrong |

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
    /// The cluster at `kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]`, some of whose servers are named, or at `kafkas://`,
    /// which is by TLS. Behind a `?` there may be `cacert`, a file with the certificates of authorities to trust instead of
    /// the system's, `sasl`, how the user proves who he is, `partitions` and `replicas` of the topics that are made here,
    /// and `group`, whose progress is seen when a topic is looked at. Nothing is connected yet.
    ///
    /// Calls of it are to be made within a Tokio runtime.
    ///
    /// # Errors
    /// When the URL is no such one, or the file cannot be read.
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
        // There is no difference but in who reads it: everybody who brings a group of his own.
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
