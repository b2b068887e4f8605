//! Takes attempts from sessions that are over, so that others get them.

use std::sync::Arc;

use windlass_core::{
    Millis, Timestamp,
    planted::{Bug, is_planted},
};

use super::HEARTBEAT_EVERY;
use crate::{
    Engine, EngineError, RoundsOf,
    inbox::{Item, Over, Reply},
    ports::{Claimed, Now, Service},
};

/// Attempts given up in one round.
const ROUND_MAX: usize = 1000;

/// A server that was not heard of for so long may be frozen, dead, or without its database: it says that it is there every
/// second.
const SILENT_AFTER: Millis = Millis(2 * HEARTBEAT_EVERY.0 + 500);

/// A server that fell silent longer ago is not to blame: a worker that lives has found another one since.
const TO_BLAME_FOR: Millis = Millis::from_secs(30);

/// Attempts of couriers given back in one round: one after the other, and the round is not to last for long.
const RELEASES_MAX: usize = 100;

/// Takes attempts from sessions that are over.
pub struct Reclaimer {
    engine: Arc<Engine>,
}

impl Reclaimer {
    /// A reclaimer of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Gives up attempts of sessions that were silent for longer than their lease. Tells how many. It does nothing while
    /// [`LeaseKeeper`](super::LeaseKeeper) has not run for a while.
    ///
    /// # Errors
    /// When the store fails; what is over stays over.
    pub async fn run_once(&self, now: Now) -> Result<usize, EngineError> {
        self.engine.rounds.note(RoundsOf::Reclaimer, self.round(now).await)
    }

    async fn round(&self, now: Now) -> Result<usize, EngineError> {
        if !self.engine.lease_rounds.are_current(now) || !self.engine.leads(Service::Timekeeping, now) {
            return Ok(0);
        }
        let lost = self.engine.store.lost(now, self.engine.beside_damaged(ROUND_MAX)).await?;
        if lost.is_empty() || is_planted(Bug::NoLeaseExpiry) {
            return Ok(0);
        }
        // Nobody has begun what a courier offers, so it is no death: another courier goes on with it, or it goes back to the
        // queue.
        let (offered, lost): (Vec<Claimed>, Vec<Claimed>) =
            lost.into_iter().partition(|claimed| claimed.session.is_courier());
        let is_free = |gone: &Claimed| !self.engine.offering.leave_behind(gone);
        let offered: Vec<Claimed> = offered.into_iter().filter(is_free).collect();
        if !offered.is_empty() {
            tracing::info!(count = offered.len(), "what couriers of other servers offered is free again");
            self.engine.timers.set();
        }
        for claimed in offered.into_iter().take(RELEASES_MAX) {
            self.engine.store.release(claimed.session, claimed.id, now).await?;
        }
        if lost.is_empty() {
            return Ok(0);
        }
        // Nothing can be decided of a damaged task. Its attempt is not handed out again, and takes up no place of a limit.
        let quarantine = self.engine.store.quarantine();
        let (damaged, lost): (Vec<Claimed>, Vec<Claimed>) =
            lost.into_iter().partition(|claimed| quarantine.contains(claimed.id.task));
        for claimed in damaged.into_iter().take(RELEASES_MAX) {
            self.engine.store.release(claimed.session, claimed.id, now).await?;
        }
        let fallen = self.fallen_servers(now).await?;
        let item = |claimed: Claimed| {
            let is_death = !fallen.iter().any(|heard_at| *heard_at + SILENT_AFTER >= claimed.at);
            Item::Lost { claimed, over: Over { at: now.mono, is_death } }
        };
        let items = self.engine.without_damaged(lost.into_iter().map(item));
        if items.is_empty() {
            return Ok(0);
        }
        let replies = self.engine.inbox.decide(items).await?;
        let count = replies.iter().filter(|reply| matches!(reply, Reply::Task(_))).count();
        tracing::info!(count, "attempts of silent workers were made ready again");
        Ok(count)
    }

    /// When servers were last heard of that are silent now. A worker whose calls went to one of them could not be heard, so
    /// what it was given while that server was there is not lost by its fault.
    async fn fallen_servers(&self, now: Now) -> Result<Vec<Timestamp>, EngineError> {
        if !self.engine.store.is_shared() {
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
