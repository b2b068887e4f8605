//! SQS: standard queues and FIFO queues.
//!
//! A call is an HTTP request of up to 10 messages, so those of one call here are made side by side as far as order allows.
//! What is received is hidden from others for a while, its *visibility timeout*, which is what
//! [`silent_after`](ConsumerSettings::silent_after) is to us: who keeps a message hides it anew, who gives it back shows
//! it, and of who died nobody has to hear.
//!
//! | file | concern |
//! |---|---|
//! | `address.rs` | what a URL says |
//! | `link.rs` | the client, and the addresses of queues |
//! | `publish.rs` | sends in batches |
//! | `fetch.rs` | receives, beside whoever waits for it |
//! | `consumer.rs` | hands out, and settles in batches |
//! | `attributes.rs` | a message as SQS has it |
//! | `failure.rs` | what is wrong |

mod address;
mod attributes;
mod consumer;
mod failure;
mod fetch;
mod link;
mod publish;

use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName;

use crate::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, Look, Message, Queue, Topic,
    sqs::{address::Address, attributes::MESSAGE_BYTES_MAX, consumer::QueueConsumer, link::Link},
};

/// SQS in one region, or a server that speaks its protocol.
///
/// Kinds of queues: `standard` and `fifo`. The name of a FIFO queue ends in `.fifo`, and so the name alone says what a queue
/// is where no kind is given. A FIFO queue keeps the order of messages with the same key, and does not take one again
/// whose id it took in the five minutes before.
#[derive(Debug)]
pub struct Sqs {
    link: Link,
}

impl Sqs {
    /// The broker at `sqs://REGION`, or at `sqs+http://HOST:PORT` or `sqs+https://HOST:PORT` for a server that speaks the
    /// protocol of SQS. Credentials are those that the AWS tools find, or `KEY:SECRET@` before the region or the host,
    /// with `%2F` for `/` and so on. Nothing is connected yet.
    ///
    /// Calls of it are to be made within a Tokio runtime.
    ///
    /// # Errors
    /// When the URL is no such one.
    pub fn new(url: &str) -> Result<Self, BrokerError> {
        Ok(Self { link: Link::new(Address::parse(url)?) })
    }
}

#[async_trait]
impl Broker for Sqs {
    fn name(&self) -> &str {
        self.link.name()
    }

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn has_headers(&self, _queue: &Queue) -> bool {
        true
    }

    fn check(&self, queue: &Queue) -> Result<(), BrokerError> {
        link::is_fifo(queue).map(drop)
    }

    fn check_topic(&self, topic: &Topic) -> Result<(), BrokerError> {
        self.check(&topic.as_queue())
    }

    async fn declare(&self, queue: &Queue) -> Result<(), BrokerError> {
        self.link.declare(queue).await.map(drop)
    }

    async fn publish(&self, queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
        publish::publish(&self.link, queue, &messages.iter().collect::<Vec<_>>()).await
    }

    async fn announce(&self, topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>> {
        // SQS knows no topics: a queue that one subscriber reads, or that somebody passes on.
        let messages: Vec<&Message> = announcements.iter().map(|said| &said.message).collect();
        publish::publish(&self.link, &topic.as_queue(), &messages).await
    }

    async fn look(&self, queue: &Queue) -> Result<Look, BrokerError> {
        use QueueAttributeName::{
            ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed,
            ApproximateNumberOfMessagesNotVisible, CreatedTimestamp,
        };
        let url = self.link.find(queue).await?;
        let request = self.link.client().await.get_queue_attributes().queue_url(url);
        let request = request
            .attribute_names(ApproximateNumberOfMessages)
            .attribute_names(ApproximateNumberOfMessagesNotVisible)
            .attribute_names(ApproximateNumberOfMessagesDelayed)
            .attribute_names(CreatedTimestamp);
        let answer = request.send().await.map_err(|error| self.link.failed(queue, error))?;
        let attributes = answer.attributes.unwrap_or_default();
        let count = |name| attributes.get(&name)?.parse::<u64>().ok();
        let visible = count(ApproximateNumberOfMessages);
        let others = [ApproximateNumberOfMessagesNotVisible, ApproximateNumberOfMessagesDelayed];
        let others: u64 = others.into_iter().filter_map(count).sum();
        Ok(Look {
            messages: visible.map(|visible| visible + others),
            counts_in_hands: true,
            identity: attributes.get(&CreatedTimestamp).cloned(),
        })
    }

    async fn consume(
        &self,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        self.link.declare(queue).await?;
        Ok(Box::new(QueueConsumer::new(self.link.clone(), queue.clone(), settings).await))
    }
}
