//! What a broker does for Windlass.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Announcement, BrokerError, Delivery, Look, Message, Progress, Queue, Receipt, Topic};

/// A connection to a broker. It connects when it is first needed and again whenever it was lost, by itself: a call while
/// the broker is away fails, and the next one tries again.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// What it is, for people: its URL without user and password.
    fn name(&self) -> &str;

    /// The largest body of a message that it takes, in bytes, headers included.
    fn message_bytes_max(&self) -> usize;

    /// Whether messages of this queue have headers. Where not, what must travel with a message is in its body.
    fn has_headers(&self, queue: &Queue) -> bool;

    /// Whether there can be such a queue, by what its name and kind are alone: nothing is asked of the broker. Whatever
    /// would make the queue refuses the same in the same words.
    ///
    /// # Errors
    /// [`BrokerError::Invalid`] where there can be none.
    fn check(&self, queue: &Queue) -> Result<(), BrokerError>;

    /// Whether there can be such a topic, as [`check`](Self::check) tells of queues.
    ///
    /// # Errors
    /// [`BrokerError::Invalid`] where there can be none.
    fn check_topic(&self, topic: &Topic) -> Result<(), BrokerError>;

    /// Makes the queue unless it is there, as durable as the broker can keep it.
    ///
    /// # Errors
    /// Also when it is there and is something else.
    async fn declare(&self, queue: &Queue) -> Result<(), BrokerError>;

    /// Sends messages, in one go as far as the product can, and returns when the broker has confirmed or refused each. A
    /// queue that is not there is made. One that could not be confirmed may have arrived all the same.
    ///
    /// One outcome per message, in their order.
    async fn publish(&self, queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>>;

    /// Says something to everybody who listens to a topic, in one go as far as the product can, and returns when the broker
    /// has confirmed or refused each. A topic that is not there is made. That nobody listens is no error. One that could
    /// not be confirmed may have been heard all the same.
    ///
    /// One outcome per announcement, in their order. Those of one call may be heard in any order: what has to be heard
    /// after something else is to be said when that was confirmed.
    async fn announce(&self, topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>>;

    /// Looks at a queue without taking anything from it.
    ///
    /// # Errors
    /// [`BrokerError::NoQueue`] where it is not there.
    async fn look(&self, queue: &Queue) -> Result<Look, BrokerError>;

    /// How far the consumers of `group` have settled the messages of a queue. Where consumers receive messages that the
    /// product does not count until they are settled, those are missing here as well.
    ///
    /// # Errors
    /// [`BrokerError::NoQueue`] where it is not there.
    async fn progress(&self, queue: &Queue, _group: &str) -> Result<Progress, BrokerError> {
        Ok(Progress::Left(self.look(queue).await?.messages))
    }

    /// Begins to consume a queue, which is made unless it is there.
    ///
    /// # Errors
    /// When the broker does not let us.
    async fn consume(
        &self,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError>;
}

/// Who consumes a queue, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// Consumers of one group share a queue's messages among them.
    pub group: String,
    /// Names this consumer among those of its group, for people.
    pub name: String,
    /// Messages it may have in its hands at once.
    pub in_hands_max: usize,
    /// A consumer that neither settles nor [keeps](Consumer::keep) a message for so long is taken for dead, where the
    /// broker does not see that by the connection: another one gets the message.
    pub silent_after: Duration,
}

/// One consumer of a queue. Dropping it gives back what it has in hands, at once or after
/// [`silent_after`](ConsumerSettings::silent_after).
#[async_trait]
pub trait Consumer: Send {
    /// Waits for messages, at most so long, and gives those that are there, at most so many; none when the time is over.
    /// Dropping the call loses none.
    ///
    /// # Errors
    /// When the connection was lost; the next call connects again. What was in hands may be delivered again then, to this
    /// consumer or another one, and its receipts may settle nothing any more.
    async fn receive(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError>;

    /// These are done and will not be delivered again.
    ///
    /// # Errors
    /// When that is not certain: they may be delivered again.
    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError>;

    /// These go back to the queue, for any consumer, soon.
    ///
    /// # Errors
    /// When that is not certain: they go back by themselves then.
    async fn give_back(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError>;

    /// This consumer still works at these. To be said more often than every
    /// [`silent_after`](ConsumerSettings::silent_after).
    ///
    /// # Errors
    /// When that is not certain.
    async fn keep(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError>;
}
