//! Publishing on brokers: attempts of modules, jobs of devices, and events.

use std::sync::Arc;

use windlass_core::Millis;

use super::{Timer, wait_at_most};
use crate::{
    Engine,
    services::{DeviceKeeper, OutboxRelay, QueuePublisher},
};

/// The pause between two rounds of a publisher where each round is a round trip to a database: attempts that become
/// ready meanwhile go together.
const SHARED_PAUSE: Millis = Millis(5);

/// The pause between two rounds of the relay: events that arrive meanwhile go together.
const RELAY_PAUSE: Millis = Millis(5);

/// The pause after a failed round.
const FAILED_PAUSE: Millis = Millis(200);

/// Offers the attempts of a module on a broker as they become ready.
pub async fn offer(publisher: Arc<QueuePublisher>, engine: Arc<Engine>, timer: impl Timer) {
    loop {
        match publisher.run_once(timer.now()).await {
            Ok(pause) => {
                if engine.shares_its_store() {
                    timer.sleep(SHARED_PAUSE).await;
                }
                wait_at_most(&timer, pause, publisher.stirred()).await;
            }
            Err(error) => {
                tracing::warn!(%error, "ready attempts could not be offered; trying again");
                timer.sleep(FAILED_PAUSE).await;
            }
        }
    }
}

/// Gives devices their jobs as these become ready.
pub async fn give_jobs(keeper: Arc<DeviceKeeper>, timer: impl Timer) {
    loop {
        match keeper.run_once(timer.now()).await {
            Ok(pause) => wait_at_most(&timer, pause, keeper.stirred()).await,
            Err(error) => {
                tracing::warn!(%error, "devices could not be given their jobs; trying again");
                timer.sleep(FAILED_PAUSE).await;
            }
        }
    }
}

/// Hears what devices report.
pub async fn hear_devices(keeper: Arc<DeviceKeeper>, timer: impl Timer) {
    loop {
        match keeper.hear_once(|| timer.now()).await {
            Ok(Millis(0)) => {}
            Ok(pause) => timer.sleep(pause).await,
            Err(error) => {
                tracing::warn!(%error, "messages of devices could not be settled; trying again");
                timer.sleep(FAILED_PAUSE).await;
            }
        }
    }
}

/// Announces events on a topic of a broker.
pub async fn relay(relay: Arc<OutboxRelay>, timer: impl Timer) {
    loop {
        match relay.run_once(|| timer.now()).await {
            Ok(pause) => {
                timer.sleep(RELAY_PAUSE).await;
                wait_at_most(&timer, pause, relay.stirred()).await;
            }
            Err(error) => {
                tracing::warn!(%error, "events could not be announced; trying again");
                timer.sleep(FAILED_PAUSE).await;
            }
        }
    }
}
