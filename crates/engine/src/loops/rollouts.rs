//! Rollouts that start the devices of a fleet.

use windlass_core::Millis;

use super::{Timer, wait_at_most};
use crate::services::RolloutKeeper;

/// The shortest pause between two rounds.
const PAUSE_MIN: Millis = Millis(1);

/// The pause after a failed round.
const FAILED_PAUSE: Millis = Millis(200);

/// Starts the devices of rollouts, and counts how their tasks end.
pub async fn keep_rollouts(keeper: RolloutKeeper, timer: impl Timer) {
    loop {
        match keeper.run_once(timer.now()).await {
            Ok(pause) => wait_at_most(&timer, pause.max(PAUSE_MIN), keeper.changed()).await,
            Err(error) => {
                tracing::warn!(%error, "rollouts could not go on; trying again");
                timer.sleep(FAILED_PAUSE).await;
            }
        }
    }
}
