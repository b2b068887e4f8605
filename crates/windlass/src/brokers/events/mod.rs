//! Publishes the events of tasks to a topic of a broker, as CloudEvents.

mod cloud_event;
mod settings;

use std::sync::Arc;

use windlass_brokers::Broker;
use windlass_engine::services::{Subscriber, TopicSubscriber};

pub(crate) use settings::{EventsSection, EventsSettings};

/// Announces events on the topic of these settings.
pub(super) fn subscriber(broker: Arc<dyn Broker>, settings: EventsSettings) -> Arc<dyn Subscriber> {
    let writer = Arc::new(cloud_event::Writer::new(settings.source));
    Arc::new(TopicSubscriber::new(broker, writer, settings.topic))
}
