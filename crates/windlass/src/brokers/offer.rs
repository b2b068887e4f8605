//! The loop of a courier.

use std::{sync::Arc, time::Duration};

use tokio::time;
use windlass_engine::{Engine, ports::Clock as _, services::Courier};

use crate::clock::SystemClock;

/// Between two rounds where each is a round trip to a database: what became ready meanwhile goes together.
const SHARED_PAUSE: Duration = Duration::from_millis(5);

/// After a round that failed.
const FAILED_PAUSE: Duration = Duration::from_millis(200);

/// Offers what becomes ready, for ever.
pub(super) async fn run(courier: Courier, engine: Arc<Engine>, clock: Arc<SystemClock>) {
    loop {
        let pause = match courier.run_once(clock.now()).await {
            Ok(pause) => Duration::from_millis(pause.0),
            Err(error) => {
                tracing::warn!(%error, "what is ready could not be offered; it is tried again");
                time::sleep(FAILED_PAUSE).await;
                continue;
            }
        };
        if engine.shares_its_store() {
            time::sleep(SHARED_PAUSE).await;
        }
        tokio::select! {
            () = time::sleep(pause) => {}
            () = courier.stirred() => {}
        }
    }
}
