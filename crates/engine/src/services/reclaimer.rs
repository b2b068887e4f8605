//! Reclaims attempts from sessions that are over, so that other workers get them.

use std::sync::Arc;

use windlass_core::{
    Millis, Timestamp,
    planted::{Bug, is_planted},
};
use windlass_store::{Claimed, Now, Service};

use super::{HEARTBEAT_EVERY, leading::Led};
use crate::{
    Engine, EngineError, RoundsOf,
    deciding::inbox::{Item, Loss, Reply},
};

/// The maximum number of attempts reclaimed in one round.
const ROUND_MAX: usize = 1000;

/// After this silence a server may be frozen, dead, or without its database: it sends a heartbeat every second.
const SILENT_AFTER: Millis = Millis(2 * HEARTBEAT_EVERY.0 + 500);

/// A server that fell silent longer ago is not considered: a live worker has found another server since.
const TO_BLAME_FOR: Millis = Millis::from_secs(30);

/// The maximum number of attempts released in one round: they are released one by one, and a round must not take long.
const RELEASES_MAX: usize = 100;

/// Reclaims attempts from sessions that are over.
pub struct Reclaimer {
    engine: Arc<Engine>,
}

impl Reclaimer {
    /// A reclaimer of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Reclaims attempts of sessions that were silent for longer than their lease. Returns their number. Silence after the
    /// last round of the [`LeaseKeeper`](super::LeaseKeeper) does not count if that was long ago.
    ///
    /// # Errors
    /// When the store fails; the next round repeats it.
    pub async fn run_once(&self, now: Now) -> Result<usize, EngineError> {
        let round = |led| self.round(led, now);
        self.engine.round_of(RoundsOf::Reclaimer, Service::Timekeeping, now, round).await
    }

    async fn round(&self, led: Led, now: Now) -> Result<usize, EngineError> {
        let Some(judged_at) = self.engine.stored_leases.judged_at(now) else { return Ok(0) };
        let lost = self.engine.store.lost(judged_at, self.engine.beside_damaged(ROUND_MAX)).await?;
        if lost.is_empty() || is_planted(Bug::NoLeaseExpiry) {
            return Ok(0);
        }
        // No worker has started an attempt that a queue publisher offers, so this is not a worker death: another queue
        // publisher takes the attempt over, or it is released.
        let (offered, lost): (Vec<Claimed>, Vec<Claimed>) =
            lost.into_iter().partition(|claimed| claimed.session.is_publisher());
        let is_free = |gone: &Claimed| !self.engine.offering.leave_behind(gone);
        let offered: Vec<Claimed> = offered.into_iter().filter(is_free).collect();
        if !offered.is_empty() {
            tracing::info!(
                count = offered.len(),
                "releasing the attempts of queue publishers of other servers"
            );
            self.engine.timers.set();
        }
        for claimed in offered.into_iter().take(RELEASES_MAX) {
            self.engine.store.release(claimed.session, claimed.id, led.lease, now).await?;
        }
        if lost.is_empty() {
            return Ok(0);
        }
        // A damaged task cannot be decided. Its attempt is not handed out again, and must not count against a limit.
        let quarantine = self.engine.store.quarantine();
        let (damaged, lost): (Vec<Claimed>, Vec<Claimed>) =
            lost.into_iter().partition(|claimed| quarantine.contains(claimed.id.task));
        for claimed in damaged.into_iter().take(RELEASES_MAX) {
            self.engine.store.release(claimed.session, claimed.id, led.lease, now).await?;
        }
        let fallen = self.fallen_servers(now).await?;
        let item = |claimed: Claimed| {
            let is_death = !fallen.iter().any(|heard_at| *heard_at + SILENT_AFTER >= claimed.at);
            Item::Lost { claimed, loss: Loss::Silent { at: judged_at.mono, is_death } }
        };
        let items = self.engine.without_damaged(lost.into_iter().map(item));
        if items.is_empty() {
            return Ok(0);
        }
        let replies = self.engine.inbox.decide_as(led.lease, items).await?;
        let count = replies.iter().filter(|reply| matches!(reply, Reply::Task(_))).count();
        tracing::info!(count, "attempts of silent workers were made ready again");
        Ok(count)
    }

    /// The times of the last heartbeats of servers that are silent now. A worker that called one of them could not
    /// renew, so it is not to blame for losing an attempt that was claimed while that server was up.
    async fn fallen_servers(&self, now: Now) -> Result<Vec<Timestamp>, EngineError> {
        if self.engine.store.cluster().is_none() {
            return Ok(Vec::new());
        }
        let servers = self.engine.store.servers().await?.into_iter();
        let silent = servers.filter(|server| {
            let silence = now.mono.0.saturating_sub(server.heard.0);
            SILENT_AFTER.0 < silence && silence < TO_BLAME_FOR.0
        });
        Ok(silent.map(|server| server.heard_at).collect())
    }
}
