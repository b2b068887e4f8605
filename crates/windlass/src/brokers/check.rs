//! Refuses queues and topics that a broker cannot have, when the program starts and before the broker is asked.

use anyhow::Context as _;
use windlass_brokers::{Broker, Queue, Topic};

use super::{
    BrokerSettings, Brokers,
    events::EventsSettings,
    settings::{PLACE_OF_EVENTS, place_of_intake, place_of_queue},
};

/// What is to be changed when a queue is refused: a key of the configuration, or an option.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys<'k> {
    pub(crate) name: &'k str,
    pub(crate) kind: &'k str,
}

impl Brokers {
    /// Checks all queues and topics of the configuration.
    ///
    /// # Errors
    /// With the section and the key of the first that its broker cannot have.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let BrokerSettings { queues, intake, events } = &self.settings;
        for offered in queues {
            let Some(broker) = self.by_url.get(&offered.broker) else { continue };
            queue(&**broker, &offered.publisher.queue, Keys { name: "queue", kind: "kind" })
                .and_then(|()| {
                    queue(&**broker, &offered.publisher.results, Keys { name: "results", kind: "kind" })
                })
                .with_context(|| place_of_queue(&offered.publisher.module))?;
        }
        for intake in intake {
            let Some(broker) = self.by_url.get(&intake.broker) else { continue };
            queue(&**broker, &intake.queue, Keys { name: "queue", kind: "kind" })
                .with_context(|| place_of_intake(&intake.queue.name))?;
        }
        if let Some(EventsSettings { broker, topic, .. }) = events
            && let Some(broker) = self.by_url.get(broker)
        {
            self::topic(&**broker, topic).context(PLACE_OF_EVENTS)?;
        }
        Ok(())
    }
}

/// Checks a queue, and the one where its messages go that nobody can use.
///
/// # Errors
/// With the key that is to be changed.
pub(crate) fn queue(broker: &dyn Broker, queue: &Queue, keys: Keys<'_>) -> anyhow::Result<()> {
    let Keys { name, kind } = keys;
    // A name that is good by itself is made wrong by the kind.
    broker.check(&Queue::new(&queue.name)).with_context(|| format!("`{name}`"))?;
    broker.check(queue).with_context(|| format!("`{kind}`"))?;
    let dead = queue.dead();
    broker.check(&dead).with_context(|| {
        format!("`{name}`: what nobody can use of the queue goes to {dead}, so its name must be another")
    })
}

fn topic(broker: &dyn Broker, topic: &Topic) -> anyhow::Result<()> {
    broker.check_topic(&Topic { kind: None, ..topic.clone() }).context("`topic`")?;
    broker.check_topic(topic).context("`kind`")
}
