//! Destinations of messages.

use std::sync::Arc;

use lapin::types::ShortString;

use crate::{
    Announcement, BrokerError, Message, Queue, Topic,
    rabbitmq::{
        exchanges::{Exchange, Way},
        kind,
        link::Link,
        queues,
    },
};

/// The destination of messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// A queue, through the default exchange, which routes by queue names.
    Queue(Queue),
    /// Each message to the queue that its subject names, through the default exchange.
    Queues,
    /// An exchange, with the queues bound to it.
    Exchange(Exchange),
}

/// A message to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Letter<'m> {
    pub(super) message: &'m Message,
    /// Its subject, for routing by subject.
    pub(super) subject: &'m str,
}

impl<'m> Letter<'m> {
    /// A message to a queue.
    pub(super) fn plain(message: &'m Message) -> Self {
        Self { message, subject: "" }
    }

    /// A message with this subject, or to the queue of this name.
    pub(super) fn to(subject: &'m str, message: &'m Message) -> Self {
        Self { message, subject }
    }

    pub(super) fn about(announcement: &'m Announcement) -> Self {
        Self::to(&announcement.subject, &announcement.message)
    }

    fn short_subject(self) -> Result<ShortString, BrokerError> {
        let too_long = |_| {
            let bytes = self.subject.len();
            BrokerError::Invalid(format!("the subject of a message has {bytes} bytes: 255 are allowed"))
        };
        ShortString::try_new(self.subject).map_err(too_long)
    }
}

impl Target {
    /// The destination of a topic's messages: an exchange, or one queue.
    pub(super) fn of(topic: &Topic) -> Result<Self, BrokerError> {
        let exchange = |way| Ok(Self::Exchange(Exchange { name: topic.name.clone(), way }));
        match topic.kind.as_deref() {
            None | Some("topic") => exchange(Way::Topic),
            Some("fanout") => exchange(Way::Fanout),
            Some("quorum" | "classic") => Ok(Self::Queue(topic.as_queue())),
            Some(kind) => Err(BrokerError::Invalid(format!(
                "RabbitMQ does not have the kind {kind:?} of the topic {topic}: use topic or fanout for an exchange, quorum \
                 or classic for one queue"
            ))),
        }
    }

    /// Refuses an invalid destination.
    pub(super) fn check(&self) -> Result<(), BrokerError> {
        match self {
            Self::Queue(queue) => kind::check(queue),
            Self::Queues => Ok(()),
            Self::Exchange(exchange) => exchange.short_name().map(drop),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Queue(queue) => &queue.name,
            Self::Queues => "",
            Self::Exchange(exchange) => &exchange.name,
        }
    }

    /// Creates it unless it exists.
    pub(super) async fn declare(&self, link: &Arc<Link>) -> Result<(), BrokerError> {
        match self {
            Self::Queue(queue) => queues::declare(link, queue).await,
            Self::Queues => Ok(()),
            Self::Exchange(exchange) => exchange.declare(link).await,
        }
    }

    /// The exchange and the routing key for a message.
    pub(super) fn way(&self, letter: Letter<'_>) -> Result<(ShortString, ShortString), BrokerError> {
        match self {
            Self::Queue(queue) => Ok((ShortString::default(), kind::name(queue)?)),
            Self::Queues => Ok((ShortString::default(), letter.short_subject()?)),
            Self::Exchange(exchange) => Ok((exchange.short_name()?, letter.short_subject()?)),
        }
    }

    /// Whether a message without a queue is lost.
    pub(super) fn wants_a_queue(&self) -> bool {
        match self {
            Self::Queue(_) | Self::Queues => true,
            Self::Exchange(exchange) => exchange.way == Way::Direct,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(kind: Option<&str>) -> Topic {
        Topic { name: "events".to_owned(), kind: kind.map(str::to_owned), keep: 0 }
    }

    #[test]
    fn kinds_and_subjects_are_checked() {
        assert_eq!(Target::of(&topic(None)), Target::of(&topic(Some("topic"))));
        let error = Target::of(&topic(Some("direct"))).unwrap_err();
        assert!(matches!(&error, BrokerError::Invalid(why) if why.contains("topic or fanout")), "{error}");

        let (message, long) = (Message::new("id", "key", "body"), "x".repeat(256));
        let letter = Letter { message: &message, subject: &long };
        assert!(matches!(Target::of(&topic(None)).unwrap().way(letter), Err(BrokerError::Invalid(_))));
        let (exchange, key) = Target::of(&topic(Some("classic"))).unwrap().way(letter).unwrap();
        assert_eq!((exchange.as_str(), key.as_str()), ("", "events"));
    }
}
