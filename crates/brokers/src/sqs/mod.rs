//! SQS: standard queues and FIFO queues.
//!
//! A call is an HTTP request with up to 10 messages, so the requests of one call run in parallel as far as
//! ordering allows. Received messages are hidden from other consumers for the *visibility timeout*, which
//! implements [`silent_after`](ConsumerSettings::silent_after): keeping a message hides it again, giving it
//! back makes it visible, and the death of a consumer needs no detection.
//!
//! | file | concern |
//! |---|---|
//! | `address.rs` | the URL |
//! | `link.rs` | the client, and the addresses of queues |
//! | `publish.rs` | sends in batches |
//! | `fetch.rs` | receives, independent of waiting callers |
//! | `consumer.rs` | hands out messages, and settles them in batches |
//! | `attributes.rs` | converts messages |
//! | `signatures.rs` | signatures of the Go library machinery |
//! | `failure.rs` | maps errors |

mod address;
mod attributes;
mod consumer;
mod failure;
mod fetch;
mod link;
mod publish;
mod signatures;

pub(crate) use signatures::Signatures;

use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName;

use crate::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, InFlight, Look, Message, Queue, Topic,
    sqs::{address::Address, attributes::MESSAGE_BYTES_MAX, consumer::QueueConsumer, link::Link},
};

/// SQS in one region, or a server with its protocol.
///
/// Kinds of queues: `standard` and `fifo`. The name of a FIFO queue ends in `.fifo`, so the name determines
/// the kind if none is given. A FIFO queue keeps the order of messages with the same key, and drops a message
/// whose id it has accepted within the last five minutes.
#[derive(Debug)]
pub struct Sqs {
    link: Link,
}

impl Sqs {
    /// Makes a client of the broker at `sqs://REGION`, or at `sqs+http://HOST:PORT` or
    /// `sqs+https://HOST:PORT` for a server with the protocol of SQS. Credentials are those that the AWS
    /// tools find, or `KEY:SECRET@` before the region or host, with `%2F` for `/` and so on. `?cacert=FILE` names the
    /// CA certificates to trust in place of the system's. Does not connect yet.
    ///
    /// Its methods must be called within a Tokio runtime.
    ///
    /// # Errors
    /// When the URL is invalid, or the file with the CA certificates is.
    pub fn new(url: &str) -> Result<Self, BrokerError> {
        Ok(Self { link: Link::new(Address::parse(url)?)? })
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
        // SQS has no topics: use a queue with one subscriber, which may forward messages.
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
            in_flight: InFlight::Counted,
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
