//! The loops in which services run. The program and the simulator run the same ones, each over its own [`Timer`].
//!
//! A loop runs for as long as its server. It logs failures and continues: a failed round is repeated after a pause.

mod brokers;
mod deciding;
mod due;
mod rollouts;
mod triggers;
mod upkeep;

use std::{future::Future, pin::pin, rc::Rc, sync::Arc};

use futures_util::future::select;
use windlass_core::Millis;
use windlass_store::Clock;

pub use brokers::{give_jobs, hear_devices, offer, relay};
pub use deciding::{commit, commit_many};
pub use due::{deliver_messages, hear_changes, keep_leases, keep_time};
pub use rollouts::keep_rollouts;
pub use triggers::keep_triggers;
pub use upkeep::{StoreClock, follow_store_first, heartbeat, import_enqueued, report_damage, sweep};

/// The clock of the services, and pauses between their rounds.
pub trait Timer: Clock {
    /// Completes after this time.
    fn sleep(&self, pause: Millis) -> impl Future<Output = ()>;
}

impl<T: Timer> Timer for Arc<T> {
    fn sleep(&self, pause: Millis) -> impl Future<Output = ()> {
        (**self).sleep(pause)
    }
}

impl<T: Timer> Timer for Rc<T> {
    fn sleep(&self, pause: Millis) -> impl Future<Output = ()> {
        (**self).sleep(pause)
    }
}

/// The longest time between two checks for due work: other servers on the same store send no wake-up to this one.
const TICK: Millis = Millis(100);

/// The shortest time between two checks for due work.
const TICK_MIN: Millis = Millis(1);

/// How long to wait for the next due work. Failed work stays due, and a failing store gets a pause between two calls.
fn pause_until(wake: Option<Millis>, has_failed: bool) -> Millis {
    match wake {
        Some(wake) if !has_failed => wake.clamp(TICK_MIN, TICK),
        _ => TICK,
    }
}

/// Waits for the next due work or a signal; after a failed round for the longest pause, whatever is signalled.
async fn wait_until_due(
    timer: &impl Timer,
    wake: Option<Millis>,
    has_failed: bool,
    signal: impl Future<Output = ()>,
) {
    let pause = pause_until(wake, has_failed);
    match has_failed {
        true => timer.sleep(pause).await,
        false => wait_at_most(timer, pause, signal).await,
    }
}

/// Waits for a signal, but not longer than `pause`.
async fn wait_at_most(timer: &impl Timer, pause: Millis, signal: impl Future<Output = ()>) {
    // The signal first: if it is set already, it is consumed.
    select(pin!(signal), pin!(timer.sleep(pause))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_work_is_looked_at_in_time_but_a_store_that_fails_gets_a_pause() {
        assert_eq!(pause_until(Some(Millis(20)), false), Millis(20));
        assert_eq!(pause_until(Some(Millis(0)), false), TICK_MIN);
        assert_eq!(pause_until(None, false), TICK);
        assert_eq!(pause_until(Some(Millis(0)), true), TICK);
    }
}
