//! Membership, the store's clock, and background work.

use windlass_core::{Millis, Timestamp};
use windlass_store::{Now, StoreError};

use super::{Timer, wait_at_most};
use crate::{
    EngineError,
    services::{DamageReporter, EnqueueImporter, HEARTBEAT_EVERY, Janitor, Membership},
};

/// A reading of the store's clock whose round trip took longer is too inaccurate.
const ROUND_TRIP_MAX: Millis = Millis(1000);

/// The pause between two batches of deletions, so that they do not block other work.
const SWEEP_PAUSE: Millis = Millis(50);

/// The longest time between two checks for tasks that applications enqueued.
const IMPORT_EVERY: Millis = Millis(1000);

/// The shortest time between two checks for enqueued tasks: a task that cannot be accepted now still waits.
const IMPORT_PAUSE: Millis = Millis(1);

/// How often damaged rows are reported.
const REPORT_EVERY: Millis = Millis(1000);

/// A clock that follows the store's clock where several servers share a store.
pub trait StoreClock: Timer {
    /// Milliseconds since any fixed moment, measured by the machine alone.
    fn elapsed(&self) -> Millis;

    /// The time after following this time of the store, if that is a jump ahead.
    fn jump_to(&self, time: Timestamp) -> Option<Now>;

    /// Follows the store's clock, which showed this time `ago` milliseconds before now.
    fn follow(&self, time: Timestamp, ago: Millis);
}

/// The most readings of the store's clock at the start of a server.
const FIRST_READINGS_MAX: usize = 5;

/// Sets the clock by the store's clock at the start of a server, if the store is shared. A server with a wrong clock would
/// end attempts too early or too late, so inaccurate readings are repeated a few times.
///
/// # Errors
/// When the store fails.
pub async fn follow_store_first(membership: &Membership, clock: &impl StoreClock) -> Result<(), EngineError> {
    for _ in 0..FIRST_READINGS_MAX {
        if follow_store(membership, clock).await? {
            return Ok(());
        }
    }
    tracing::warn!(
        "the store answers too slowly to set the clock by it; trying again with the next heartbeat"
    );
    Ok(())
}

/// Sets the clock by the store's clock, if the store is shared. A jump ahead ends no lease. Returns false if the reading was
/// too inaccurate to follow.
async fn follow_store(membership: &Membership, clock: &impl StoreClock) -> Result<bool, EngineError> {
    let asked = clock.elapsed();
    let Some(time) = membership.time().await? else { return Ok(true) };
    let took = Millis(clock.elapsed().0.saturating_sub(asked.0));
    if took > ROUND_TRIP_MAX {
        return Ok(false);
    }
    if let Some(then) = clock.jump_to(time) {
        membership.forgive(then).await?;
    }
    clock.follow(time, Millis(took.0 / 2));
    Ok(true)
}

/// Renews the membership of this server and follows the store's clock, at once where another server has ended and this one
/// can take its services over. Returns the error when the store has a format
/// that this version does not know.
pub async fn heartbeat<C: StoreClock>(membership: &Membership, clock: &C) -> EngineError {
    loop {
        wait_at_most(clock, HEARTBEAT_EVERY, membership.released()).await;
        if let Err(error) = follow_store(membership, clock).await {
            tracing::warn!(%error, "the store's time could not be read; trying again");
        }
        match membership.run_once(clock.now()).await {
            Err(error @ EngineError::Store(StoreError::Outgrown(_))) => return error,
            Err(error) => {
                tracing::warn!(%error, "the membership of this server could not be renewed; trying again");
            }
            Ok(()) => {}
        }
    }
}

/// Accepts tasks that applications enqueued by SQL. `settled` receives the number of settled rows of each round.
pub async fn import_enqueued(importer: EnqueueImporter, timer: impl Timer, settled: impl Fn(usize)) {
    loop {
        match importer.run_once(timer.now()).await {
            Ok(0) => {}
            Ok(count) => {
                settled(count);
                continue;
            }
            Err(error) => tracing::warn!(%error, "enqueued tasks could not be accepted; trying again"),
        }
        timer.sleep(IMPORT_PAUSE).await;
        wait_at_most(&timer, IMPORT_EVERY, importer.arrival()).await;
    }
}

/// Raises alarms about tasks whose rows are damaged. `raised` receives their number.
pub async fn report_damage(reporter: DamageReporter, timer: impl Timer, raised: impl Fn(usize)) {
    loop {
        timer.sleep(REPORT_EVERY).await;
        match reporter.run_once().await {
            Ok(count) => raised(count),
            Err(error) => tracing::warn!(%error, "damaged rows could not be reported; trying again"),
        }
    }
}

/// Periodically deletes rows whose retention has ended. `deleted` receives the number of rows of each batch.
pub async fn sweep(janitor: Janitor, every: Millis, timer: impl Timer, deleted: impl Fn(u64)) {
    loop {
        timer.sleep(every).await;
        loop {
            match janitor.run_once(timer.now()).await {
                Ok(0) => break,
                Ok(rows) => deleted(rows),
                Err(error) => {
                    tracing::warn!(%error, "old tasks could not be deleted; trying again");
                    break;
                }
            }
            timer.sleep(SWEEP_PAUSE).await;
        }
    }
}
