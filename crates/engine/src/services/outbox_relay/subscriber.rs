//! Subscribers: what announces events, such as a topic of a broker.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_brokers::{Announcement, Broker, BrokerError, Topic};
use windlass_core::{Event, Task};

/// Writes events as messages.
pub trait WriteEvent: Send + Sync {
    /// The announcement of a task's event with this number.
    fn announcement(&self, task: &Task, n: u64, event: &Event) -> Announcement;
}

/// An event of a task to announce.
#[derive(Debug, Clone, Copy)]
pub struct TaskEvent<'a> {
    /// The task as it is now. Its parameters and results may be missing unless the subscriber reads them.
    pub task: &'a Task,
    /// The number of the event in its task, from 1.
    pub n: u64,
    /// The event.
    pub event: &'a Event,
}

/// Hears of the events of tasks.
#[async_trait]
pub trait Subscriber: Send + Sync {
    /// Where events go, for log and alarm messages: "on the topic T of BROKER".
    fn place(&self) -> String;

    /// Whether it reads the parameters and results of the task of an event.
    fn reads_payload(&self, _event: &Event) -> bool {
        false
    }

    /// Announces events of different tasks and returns when each is confirmed or refused: one outcome per event, in
    /// their order. An event that was confirmed may be announced again.
    async fn announce(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), BrokerError>>;
}

/// Announces events on a topic of a broker.
pub struct TopicSubscriber {
    broker: Arc<dyn Broker>,
    writer: Arc<dyn WriteEvent>,
    topic: Topic,
}

impl TopicSubscriber {
    /// A subscriber that has events written by `writer` and announces them on this topic.
    #[must_use]
    pub fn new(broker: Arc<dyn Broker>, writer: Arc<dyn WriteEvent>, topic: Topic) -> Self {
        Self { broker, writer, topic }
    }
}

#[async_trait]
impl Subscriber for TopicSubscriber {
    fn place(&self) -> String {
        format!("on the topic {} of {}", self.topic.name, self.broker.name())
    }

    async fn announce(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), BrokerError>> {
        let announcement = |event: &TaskEvent<'_>| self.writer.announcement(event.task, event.n, event.event);
        let announcements: Vec<Announcement> = events.iter().map(announcement).collect();
        self.broker.announce(&self.topic, &announcements).await
    }
}
