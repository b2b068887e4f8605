//! Events out: what happens to tasks is announced on a topic of a broker, as CloudEvents.

mod cloud_event;
mod settings;

use std::{sync::Arc, time::Duration};

use tokio::time;
use windlass_brokers::Broker;
use windlass_engine::{
    Engine,
    services::{OutboxRelay, WriteEvent},
};
use windlass_store::Clock as _;

use crate::clock::SystemClock;

pub(crate) use settings::{EventsSection, EventsSettings};

/// After a round that failed.
const FAILED_PAUSE: Duration = Duration::from_millis(200);

/// Between two rounds: what happens meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(5);

/// The outbox relay of a server. From now on what happens is kept for it.
pub(super) fn outbox_relay(
    engine: Arc<Engine>,
    broker: Arc<dyn Broker>,
    settings: EventsSettings,
) -> OutboxRelay {
    let writer: Arc<dyn WriteEvent> = Arc::new(cloud_event::Writer::new(settings.source));
    OutboxRelay::new(engine, broker, writer, settings.topic)
}

/// Announces what happens, for ever.
pub(super) async fn run(outbox_relay: OutboxRelay, clock: Arc<SystemClock>) {
    loop {
        let pause = match outbox_relay.run_once(|| clock.now()).await {
            Ok(pause) => Duration::from_millis(pause.0),
            Err(error) => {
                tracing::warn!(%error, "what happened could not be announced; it is tried again");
                time::sleep(FAILED_PAUSE).await;
                continue;
            }
        };
        time::sleep(PAUSE).await;
        tokio::select! {
            () = time::sleep(pause) => {}
            () = outbox_relay.stirred() => {}
        }
    }
}
