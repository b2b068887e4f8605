//! Events out: what happens to tasks is announced on a topic of a broker, as CloudEvents.

mod cloud_event;
mod settings;

use std::{sync::Arc, time::Duration};

use tokio::time;
use windlass_brokers::Broker;
use windlass_engine::{
    Engine,
    services::{Announcer, WriteEvent},
};
use windlass_store::Clock as _;

use crate::clock::SystemClock;

pub(crate) use settings::{EventsSection, EventsSettings};

/// After a round that failed.
const FAILED_PAUSE: Duration = Duration::from_millis(200);

/// Between two rounds: what happens meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(5);

/// The announcer of a server. From now on what happens is kept for it.
pub(super) fn announcer(engine: Arc<Engine>, broker: Arc<dyn Broker>, settings: EventsSettings) -> Announcer {
    let writer: Arc<dyn WriteEvent> = Arc::new(cloud_event::Writer::new(settings.source));
    Announcer::new(engine, broker, writer, settings.topic)
}

/// Announces what happens, for ever.
pub(super) async fn run(announcer: Announcer, clock: Arc<SystemClock>) {
    loop {
        let pause = match announcer.run_once(|| clock.now()).await {
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
            () = announcer.stirred() => {}
        }
    }
}
