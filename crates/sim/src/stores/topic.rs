//! The topic on which servers publish events: it may lose or refuse a message, or accept it without a confirmation.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use windlass_brokers::{
    Announcement, Broker, BrokerError, Consumer, ConsumerSettings, Look, Message, Queue, Topic,
};
use windlass_core::{Event, Task, TaskId};
use windlass_engine::services::WriteEvent;

use crate::world::{Device, Entry, Journal, Operation};

/// A broker with a topic and no queues, as seen by one server.
pub(crate) struct Topics {
    pub(crate) device: Device,
    pub(crate) journal: Journal,
    pub(crate) dice: Mutex<fastrand::Rng>,
    /// How often, in a thousand, it loses a message, does not confirm an accepted one, and refuses one.
    pub(crate) losses: u64,
}

impl Topics {
    /// Accepts one announcement, with some probability.
    fn hear(&self, announcement: &Announcement) -> Result<(), BrokerError> {
        let chance = self.dice.lock().unwrap_or_else(PoisonError::into_inner).u64(..1000);
        let (arrives, outcome) = match chance / self.losses.max(1) {
            0 if self.losses > 0 => (false, away("it does not answer")),
            1 if self.losses > 0 => (true, away("it does not answer")),
            2 if self.losses > 0 => (false, Err(BrokerError::Refused("it refuses".to_owned()))),
            _ => (true, Ok(())),
        };
        if arrives
            && let Some((task, n)) = announcement.message.id.split_once('/')
            && let (Ok(task), Ok(n)) = (task.parse::<TaskId>(), n.parse())
        {
            self.journal.add(Entry::Announced { task, n });
        }
        outcome
    }
}

fn away<T>(why: &str) -> Result<T, BrokerError> {
    Err(BrokerError::Unreachable(why.to_owned()))
}

#[async_trait]
impl Broker for Topics {
    fn name(&self) -> &str {
        "topics"
    }

    fn message_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn has_headers(&self, _queue: &Queue) -> bool {
        true
    }

    fn check(&self, _queue: &Queue) -> Result<(), BrokerError> {
        Ok(())
    }

    fn check_topic(&self, _topic: &Topic) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn declare(&self, _queue: &Queue) -> Result<(), BrokerError> {
        away("it has no queues")
    }

    async fn publish(&self, _queue: &Queue, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
        messages.iter().map(|_| away("it has no queues")).collect()
    }

    async fn announce(&self, _topic: &Topic, announcements: &[Announcement]) -> Vec<Result<(), BrokerError>> {
        let there = self.device.wait(Operation::Read).await;
        let hear = |announcement| match &there {
            Ok(()) => self.hear(announcement),
            Err(error) => away(&error.to_string()),
        };
        let outcomes = announcements.iter().map(hear).collect();
        match self.device.wait(Operation::Back).await {
            Ok(()) => outcomes,
            Err(error) => announcements.iter().map(|_| away(&error.to_string())).collect(),
        }
    }

    async fn look(&self, _queue: &Queue) -> Result<Look, BrokerError> {
        away("it has no queues")
    }

    async fn consume(
        &self,
        _queue: &Queue,
        _settings: &ConsumerSettings,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        away("it has no queues")
    }
}

/// Writes the number of the event.
pub(crate) struct Numbers;

impl WriteEvent for Numbers {
    fn announcement(&self, task: &Task, n: u64, _event: &Event) -> Announcement {
        let message = Message::new(format!("{}/{n}", task.id), task.id.to_string(), "");
        Announcement { subject: "event".to_owned(), message }
    }
}

/// The topic.
pub(crate) fn topic() -> Topic {
    Topic { name: "events".to_owned(), kind: None, keep: 1 }
}
