//! Redis 7: streams with consumer groups, and lists for programs that support nothing else.
//!
//! A queue is one key. The three kinds:
//!
//! | | `stream` | `list` | `reliable-list` |
//! |---|---|---|---|
//! | a message | an entry: `body`, headers, `windlass-id`, `windlass-key` are its fields | the body | the body |
//! | received by | `XREADGROUP`; the group records its consumer | `BLMPOP`; it is removed | it moves into the taken list of its consumer |
//! | done | `XACK` and `XDEL` together, so that the length counts open messages | nothing | it is removed from that list |
//! | after its consumer died | others claim it after `silent_after` | it is lost | others put it back after `silent_after` |
//! | a new queue is recognised by | the position of an unused group | a separate key | a separate key |
//!
//! A topic is a stream too. Subscribers read it with `XREAD`, or with their own group. Its messages are never
//! done, so the stream is trimmed to a number of messages.
//!
//! | file | concern |
//! |---|---|
//! | `address.rs` | the URL |
//! | `link.rs` | the shared connection: made when needed, and again |
//! | `reader.rs` | reads that wait, one at a time, and survive the call that started them |
//! | `entry.rs`, `stream.rs` | messages as entries; creating, filling and observing streams |
//! | `group.rs`, `stream_consumer.rs` | the requests of a consumer to its group; when it makes them |
//! | `list.rs`, `list_consumer.rs` | the same for lists |
//! | `taken.rs`, `taken_consumer.rs` | consumers of lists that keep messages until they are done |
//! | `machinery.rs` | states, groups and delayed signatures of the Go library machinery |
//! | `error.rs` | maps errors |
//!
//! One server, or any server behind one address: clusters and sentinels are not asked for the place of keys.

mod address;
mod entry;
mod error;
mod group;
mod link;
mod list;
mod list_consumer;
mod machinery;
mod reader;
mod stream;
mod stream_consumer;
mod survey;
mod taken;
mod taken_consumer;

pub(crate) use self::machinery::Machinery;

use std::sync::Arc;

use async_trait::async_trait;

use self::{
    entry::Kept, group::Place, link::Link, list_consumer::ListConsumer, stream_consumer::StreamConsumer,
    taken_consumer::TakenConsumer,
};
use crate::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, Look, Message, Progress, Queue, Topic,
};

/// The largest message. Redis would accept 512 MiB, but answers no other client while it reads that.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A Redis server.
pub struct Redis {
    name: String,
    link: Arc<Link>,
}

/// The kind of a queue in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stream,
    List,
    ReliableList,
}

impl Redis {
    /// Makes a client of a server by its URL: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or
    /// `rediss://` for TLS. Parameters after a `?`: `cacert`, a file with the CA certificates to trust in
    /// place of the system's; `cert` and `key`, files with the certificate of this client and its private key.
    /// Does not connect yet.
    ///
    /// # Errors
    /// When the URL is invalid, or a file cannot be used.
    pub fn open(url: &str) -> Result<Self, BrokerError> {
        let (client, name) = address::read(url)?;
        Ok(Self { name, link: Arc::new(Link::new(client)) })
    }
}

/// The kind of a queue; an error if Redis does not support it.
fn kind(queue: &Queue) -> Result<Kind, BrokerError> {
    check_name(&queue.name)?;
    match queue.kind.as_deref() {
        None | Some("stream") => Ok(Kind::Stream),
        Some("list") => Ok(Kind::List),
        Some("reliable-list") => Ok(Kind::ReliableList),
        Some(other) => Err(BrokerError::Invalid(format!(
            "Redis has no queues of the kind {other}: {queue} can be a stream, a list or a reliable-list"
        ))),
    }
}

/// Refuses an invalid topic.
fn check_topic(topic: &Topic) -> Result<(), BrokerError> {
    check_name(&topic.name)?;
    match topic.kind.as_deref() {
        None | Some("stream") => Ok(()),
        Some("pubsub") => Err(BrokerError::Invalid(format!(
            "{topic} cannot be of the kind pubsub: Redis drops messages that no subscriber receives at once; a topic is a \
             stream, which subscribers read with XREAD"
        ))),
        Some(other) => Err(BrokerError::Invalid(format!(
            "Redis has no topics of the kind {other}: {topic} can be a stream"
        ))),
    }
}

/// Redis accepts any key, even the empty one, which is always a mistake.
fn check_name(name: &str) -> Result<(), BrokerError> {
    if name.is_empty() {
        return Err(BrokerError::Invalid("the name of a key is empty: give it one".to_owned()));
    }
    Ok(())
}

#[async_trait]
impl Broker for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn has_headers(&self, queue: &Queue) -> bool {
        matches!(kind(queue), Ok(Kind::Stream) | Err(_))
    }

    fn check(&self, queue: &Queue) -> Result<(), BrokerError> {
        kind(queue).map(drop)
    }

    fn check_topic(&self, topic: &Topic) -> Result<(), BrokerError> {
        check_topic(topic)
    }

    async fn declare(&self, queue: &Queue) -> Result<(), BrokerError> {
        match kind(queue)? {
            Kind::Stream => stream::declare(&self.link, &queue.name).await,
            Kind::List | Kind::ReliableList => list::declare(&self.link, &queue.name).await,
        }
    }

    async fn publish(&self, queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
        match kind(queue) {
            Ok(Kind::Stream) => {
                let messages: Vec<&Message> = messages.iter().collect();
                stream::publish(&self.link, &queue.name, Kept::UntilDone, &messages).await
            }
            Ok(Kind::List | Kind::ReliableList) => list::publish(&self.link, &queue.name, messages).await,
            Err(error) => vec![Err(error); messages.len()],
        }
    }

    async fn announce(&self, topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>> {
        if let Err(error) = check_topic(topic) {
            return vec![Err(error); announcements.len()];
        }
        let messages: Vec<&Message> = announcements.iter().map(|said| &said.message).collect();
        stream::publish(&self.link, &topic.name, Kept::Last(topic.keep), &messages).await
    }

    async fn look(&self, queue: &Queue) -> Result<Look, BrokerError> {
        match kind(queue)? {
            Kind::Stream => stream::look(&self.link, &queue.name).await,
            Kind::List | Kind::ReliableList => list::look(&self.link, &queue.name).await,
        }
    }

    async fn progress(&self, queue: &Queue, _group: &str) -> Result<Progress, BrokerError> {
        match kind(queue)? {
            Kind::Stream => stream::progress(&self.link, &queue.name).await,
            Kind::List | Kind::ReliableList => {
                Ok(Progress::Left(list::look(&self.link, &queue.name).await?.messages))
            }
        }
    }

    async fn consume(
        &self,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        self.declare(queue).await?;
        let link = Arc::clone(&self.link);
        Ok(match kind(queue)? {
            Kind::Stream => Box::new(StreamConsumer::new(link, place(queue, settings))),
            Kind::ReliableList => Box::new(TakenConsumer::new(link, &queue.name, settings)),
            Kind::List => Box::new(ListConsumer::new(link, &queue.name, settings.in_hands_max)),
        })
    }
}

fn place(queue: &Queue, settings: &ConsumerSettings) -> Place {
    Place {
        stream: queue.name.clone(),
        group: settings.group.clone(),
        consumer: format!("{}-{:016x}", settings.name, fastrand::u64(..)),
        silent_after: settings.silent_after,
        in_hands_max: settings.in_hands_max,
    }
}
