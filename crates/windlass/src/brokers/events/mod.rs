//! Events out: what happens to tasks is announced on a topic of a broker, as CloudEvents.

mod cloud_event;
mod settings;

use std::sync::Arc;

use windlass_brokers::Broker;
use windlass_engine::{
    Engine,
    services::{OutboxRelay, WriteEvent},
};

pub(crate) use settings::{EventsSection, EventsSettings};

/// The outbox relay of a server. From now on what happens is kept for it.
pub(super) fn outbox_relay(
    engine: Arc<Engine>,
    broker: Arc<dyn Broker>,
    settings: EventsSettings,
) -> OutboxRelay {
    let writer: Arc<dyn WriteEvent> = Arc::new(cloud_event::Writer::new(settings.source));
    OutboxRelay::new(engine, broker, writer, settings.topic)
}
