//! Triggers that fire by themselves.

use windlass_core::Millis;

use super::{Timer, wait_at_most};
use crate::services::TriggerKeeper;

/// The shortest pause between two rounds.
const PAUSE_MIN: Millis = Millis(1);

/// The pause after a failed round.
const FAILED_PAUSE: Millis = Millis(200);

/// Fires triggers at the instants of their schedules.
pub async fn keep_triggers(keeper: TriggerKeeper, timer: impl Timer) {
    loop {
        match keeper.run_once(timer.now()).await {
            Ok(pause) => wait_at_most(&timer, pause.max(PAUSE_MIN), keeper.changed()).await,
            Err(error) => {
                tracing::warn!(%error, "triggers could not be fired; trying again");
                timer.sleep(FAILED_PAUSE).await;
            }
        }
    }
}
