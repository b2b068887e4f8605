//! Messages, queues and topics.

use std::fmt;

use bytes::Bytes;

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Stays the same when the message is sent again. Brokers that deduplicate messages use it.
    pub id: String,
    /// Messages with the same key keep their order, where the broker has ordering: a record's key, a
    /// message's group.
    pub key: String,
    /// Headers, where the broker supports them. Names are lower case with hyphens.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// −10 to 10, where the queue has priorities; higher values go first.
    pub priority: i8,
}

impl Message {
    /// A message without headers, with priority 0.
    pub fn new(id: impl Into<String>, key: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { id: id.into(), key: key.into(), headers: Vec::new(), body: body.into(), priority: 0 }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// A message that has arrived. It belongs to the consumer until that settles it or dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The message. For one from another sender, `id` is the broker's own id.
    pub message: Message,
    /// Identifies it for settling.
    pub receipt: Receipt,
    /// How often it was delivered, including this time, where the broker reports it.
    pub deliveries: Option<u32>,
}

/// Identifies a delivery to its consumer, in a format of the product.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub Box<str>);

/// A queue of a broker. Products also call it stream, list or topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// The kind of queue, where the product has several; none = the kind that the product recommends.
    pub kind: Option<String>,
}

impl Queue {
    /// A queue of the recommended kind.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: None }
    }

    /// The dead-letter queue: unusable messages, with the reason.
    #[must_use]
    pub fn dead(&self) -> Self {
        // The name of a FIFO queue of SQS must keep its suffix.
        let name = match self.name.strip_suffix(".fifo") {
            Some(name) => format!("{name}-dead.fifo"),
            None => format!("{}-dead", self.name),
        };
        Self { name, kind: self.kind.clone() }
    }

    /// Whether this is a dead-letter queue, by its name.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.name.strip_suffix(".fifo").unwrap_or(&self.name).ends_with("-dead")
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A topic of a broker: each message goes to all subscribers, while those of a [`Queue`] are shared among its
/// consumers. Products also call it stream or exchange.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// The kind of topic, where the product has several; none = the kind that the product recommends.
    pub kind: Option<String>,
    /// How many messages to keep at least, where the product would keep all of them.
    pub keep: u64,
}

impl Topic {
    /// The queue with this name and kind, for products where topics and queues only differ in their readers.
    #[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "sqs"))]
    pub(crate) fn as_queue(&self) -> Queue {
        Queue { name: self.name.clone(), kind: self.kind.clone() }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A message to publish on a [`Topic`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Its subject, in words separated by dots, such as `task.accepted`. Brokers with subscriptions by
    /// subject use it for routing.
    pub subject: String,
    /// The message.
    pub message: Message,
}

/// The observable state of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The number of messages in it.
    pub messages: Option<u64>,
    /// Whether that number includes messages in flight.
    pub in_flight: InFlight,
    /// Changes when the data is lost: the queue or the broker's data was created again.
    pub identity: Option<String>,
}

/// Whether the number of messages in a queue includes those in flight: received by a consumer, and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFlight {
    /// It does.
    Counted,
    /// It does not.
    NotCounted,
    /// There are none, because there are no consumers.
    None,
}
