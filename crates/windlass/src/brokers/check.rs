//! Checks the names and kinds of queues and topics when the program starts, without a connection to a broker.

use anyhow::Context as _;
use windlass_brokers::{Broker, Queue, Topic};

use super::{
    BrokerSettings, Brokers, election,
    events::EventsSettings,
    machinery,
    settings::{PLACE_OF_EVENTS, place_of_intake, place_of_queue},
};

/// The configuration key or the option that an error message names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys<'k> {
    pub(crate) name: &'k str,
    pub(crate) kind: &'k str,
}

impl Brokers {
    /// Checks all queues and topics of the configuration.
    ///
    ///  # Errors
    /// Names the section and the key of the first queue or topic that its broker does not support.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let BrokerSettings { queues, intake, events, machinery } = &self.settings;
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
            if let Some(leader) = &intake.leader {
                election::candidate(leader)
                    // Only its text: the error itself would have the exit code of a mistake on the command line.
                    .map_err(|error| anyhow::Error::msg(error.to_string()))
                    .context("`leader`")
                    .with_context(|| place_of_intake(&intake.queue.name))?;
            }
        }
        if let Some(machinery) = machinery
            && let Some(broker) = self.by_url.get(&machinery.broker)
        {
            for signatures in machinery.queues() {
                queue(&**broker, &signatures, Keys { name: "queues", kind: "queues" })
                    .context(machinery::PLACE)?;
            }
        }
        if let Some(EventsSettings { broker, topic, .. }) = events
            && let Some(broker) = self.by_url.get(broker)
        {
            self::topic(&**broker, topic).context(PLACE_OF_EVENTS)?;
        }
        Ok(())
    }
}

/// Checks a queue and its dead-letter queue.
///
/// # Errors
/// Names the key to change.
pub(crate) fn queue(broker: &dyn Broker, queue: &Queue, keys: Keys<'_>) -> anyhow::Result<()> {
    let Keys { name, kind } = keys;
    // The name alone comes first: a valid name can become invalid with a kind.
    broker.check(&Queue::new(&queue.name)).with_context(|| format!("`{name}`"))?;
    broker.check(queue).with_context(|| format!("`{kind}`"))?;
    let dead = queue.dead();
    broker.check(&dead).with_context(|| {
        format!("`{name}`: the dead-letter queue would be {dead}, which the broker does not accept: use another name")
    })
}

fn topic(broker: &dyn Broker, topic: &Topic) -> anyhow::Result<()> {
    broker.check_topic(&Topic { kind: None, ..topic.clone() }).context("`topic`")?;
    broker.check_topic(topic).context("`kind`")
}
