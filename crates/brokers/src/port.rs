//! The port: the operations of a broker that Windlass uses.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Announcement, BrokerError, Delivery, Look, Message, Progress, Queue, Receipt, Topic};

/// A broker. It connects when it is first used, and again after a lost connection: a call while the broker is
/// unavailable fails, and the next one tries again.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Its name for log messages: its URL without user and password.
    fn name(&self) -> &str;

    /// The largest message that it accepts, in bytes, headers included.
    fn message_bytes_max(&self) -> usize;

    /// Whether messages of this queue have headers. If not, all data must be in the body.
    fn has_headers(&self, queue: &Queue) -> bool;

    /// Checks a queue's name and kind, without connecting to the broker. Calls that would create the queue
    /// return the same error.
    ///
    /// # Errors
    /// [`BrokerError::Invalid`] if the broker does not support such a queue.
    fn check(&self, queue: &Queue) -> Result<(), BrokerError>;

    /// Checks a topic's name and kind, like [`check`](Self::check).
    ///
    /// # Errors
    /// [`BrokerError::Invalid`] if the broker does not support such a topic.
    fn check_topic(&self, topic: &Topic) -> Result<(), BrokerError>;

    /// Creates the queue unless it exists, as durable as the broker can keep it.
    ///
    /// # Errors
    /// Also when an object of another type has this name.
    async fn declare(&self, queue: &Queue) -> Result<(), BrokerError>;

    /// Sends messages, in one request if possible, and returns when the broker has confirmed or refused each.
    /// Creates a missing queue. A message that could not be confirmed may have arrived nevertheless.
    ///
    /// Returns one outcome per message, in their order.
    async fn publish(&self, queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>>;

    /// Publishes messages to all subscribers of a topic, in one request if possible, and returns when the
    /// broker has confirmed or refused each. Creates a missing topic. It is fine if there are no subscribers.
    /// A message that could not be confirmed may have been received nevertheless.
    ///
    /// Returns one outcome per announcement, in their order. Subscribers may receive those of one call in any
    /// order: publish a message that must come later after the earlier one is confirmed.
    async fn announce(&self, topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>>;

    /// Reads the state of a queue without receiving messages.
    ///
    /// # Errors
    /// [`BrokerError::NoQueue`] if it does not exist.
    async fn look(&self, queue: &Queue) -> Result<Look, BrokerError>;

    /// How far the consumers of `group` have settled the messages of a queue. Products that do not count
    /// messages in flight leave them out here too.
    ///
    /// # Errors
    /// [`BrokerError::NoQueue`] if it does not exist.
    async fn progress(&self, queue: &Queue, _group: &str) -> Result<Progress, BrokerError> {
        Ok(Progress::Left(self.look(queue).await?.messages))
    }

    /// Starts to consume a queue. Creates it unless it exists.
    ///
    /// # Errors
    /// When the broker refuses.
    async fn consume(
        &self,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError>;

    /// Closes the connections, where the product has connections that another client must not have to wait for. Consumers
    /// end, and their messages in flight go back. Dropping the future cuts the connections off. The next call connects
    /// again.
    async fn disconnect(&self) {}
}

/// The settings of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// Consumers of one group share the messages of a queue.
    pub group: String,
    /// The name of this consumer within its group, for tools of the broker.
    pub name: String,
    /// The most messages in flight.
    pub in_hands_max: usize,
    /// A consumer that neither settles nor [keeps](Consumer::keep) a message for this long counts as dead, on
    /// brokers that do not notice it by the connection: another consumer gets the message.
    pub silent_after: Duration,
    /// The queue also gets these messages, on brokers with exchanges.
    pub binding: Option<Binding>,
}

/// The messages of an exchange that a queue gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The exchange. It is created unless it exists, with the kind `direct`.
    pub exchange: String,
    /// The binding key.
    pub key: String,
}

/// One consumer of a queue. Dropping it gives back its messages in flight, at once or after
/// [`silent_after`](ConsumerSettings::silent_after).
#[async_trait]
pub trait Consumer: Send {
    /// Waits up to `wait` for messages, and returns up to `max` of them; none after that time. Dropping the
    /// future loses none.
    ///
    /// # Errors
    /// When the connection was lost; the next call connects again. Then messages in flight may be delivered
    /// again, to this consumer or another one, and their receipts may have no effect any more.
    async fn receive(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError>;

    /// Acknowledges messages: they are not delivered again.
    ///
    /// # Errors
    /// When this is uncertain: they may be delivered again.
    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError>;

    /// Gives messages back to the queue, for any consumer, soon.
    ///
    /// # Errors
    /// When this is uncertain: then they go back by themselves.
    async fn give_back(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError>;

    /// Keeps messages: this consumer still works on them. Must be called more often than every
    /// [`silent_after`](ConsumerSettings::silent_after).
    ///
    /// # Errors
    /// When this is uncertain.
    async fn keep(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError>;
}
