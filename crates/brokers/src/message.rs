//! What is sent, and what arrives.

use std::fmt;

use bytes::Bytes;

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The same for a message that is sent again. Brokers that keep repeated messages back by themselves do so by this.
    pub id: String,
    /// Messages with the same key keep their order, where the broker keeps any: a record's key, a message's group.
    pub key: String,
    /// Names and values that travel beside the body, where the broker has such. Names are lower case with hyphens.
    pub headers: Vec<(String, String)>,
    /// What it says.
    pub body: Bytes,
    /// Greater goes first, −10 to 10, where the queue has priorities.
    pub priority: i8,
}

impl Message {
    /// A message without headers, of middle priority.
    pub fn new(id: impl Into<String>, key: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { id: id.into(), key: key.into(), headers: Vec::new(), body: body.into(), priority: 0 }
    }

    /// The same with one header more.
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

/// A message that arrived, and is the consumer's until it settles it or dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What was sent. Of one that was sent by somebody else, `id` is what the broker knows it by.
    pub message: Message,
    /// By this the consumer settles it.
    pub receipt: Receipt,
    /// How often it was delivered, this time included, where the broker tells.
    pub deliveries: Option<u32>,
}

/// Names a delivery to the consumer that got it. What it says is the product's own matter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub Box<str>);

/// A queue of a broker, by whatever name the product has for it: stream, list, queue, topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// What kind of queue it is, where the product has several; nothing = what the product recommends.
    pub kind: Option<String>,
}

impl Queue {
    /// A queue of the kind that the product recommends.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: None }
    }

    /// Where messages go that nobody can use, with the reason.
    #[must_use]
    pub fn dead(&self) -> Self {
        // A queue of SQS that keeps order says so by its name's end.
        let name = match self.name.strip_suffix(".fifo") {
            Some(name) => format!("{name}-dead.fifo"),
            None => format!("{}-dead", self.name),
        };
        Self { name, kind: self.kind.clone() }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A topic of a broker: what is said there goes to everybody who listens, where messages of a [`Queue`] are shared among
/// its consumers. By whatever name the product has for it: stream, exchange, topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// What kind of topic it is, where the product has several; nothing = what the product recommends.
    pub kind: Option<String>,
    /// How many messages are to be kept at least, where the product would keep all of them for ever.
    pub keep: u64,
}

impl Topic {
    /// The queue of this name and kind, where the product tells topics from queues by who reads them alone.
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

/// Something to say on a [`Topic`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// What it is about, in words with dots between them, such as `task.accepted`. Where the broker knows who wants to
    /// hear of what, it goes by this.
    pub subject: String,
    /// What is said.
    pub message: Message,
}

/// What can be seen of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// How many messages are in it.
    pub messages: Option<u64>,
    /// Whether those count that consumers have in their hands and have not settled.
    pub counts_in_hands: bool,
    /// Another value says that what was in it is gone: the queue or the broker's data were made anew.
    pub identity: Option<String>,
}
