//! Processes due timers: starts, retries, deadlines, timeouts.

use std::sync::Arc;

use windlass_core::{Attempt, Command};
use windlass_store::{Due, Now, Service};

use super::leading::Led;
use crate::{Engine, EngineError, RoundsOf, deciding::inbox::Item};

/// The maximum number of due items processed in one round.
const ROUND_MAX: usize = 1000;

/// Wakes tasks whose time has come.
pub struct Timekeeper {
    engine: Arc<Engine>,
}

impl Timekeeper {
    /// A timekeeper of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Processes a bounded number of due items. Returns their number.
    ///
    /// # Errors
    /// When the store fails; due items stay due.
    pub async fn run_once(&self, now: Now) -> Result<usize, EngineError> {
        let round = |led| self.round(led, now);
        self.engine.round_of(RoundsOf::Timekeeper, Service::Timekeeping, now, round).await
    }

    async fn round(&self, led: Led, now: Now) -> Result<usize, EngineError> {
        let due = self.engine.store.due(now, self.engine.beside_damaged(ROUND_MAX)).await?;
        let items = self.engine.without_damaged(due.into_iter().map(item));
        if items.is_empty() {
            return Ok(0);
        }
        let count = items.len();
        self.engine.inbox.decide_as(led.lease, items).await?;
        Ok(count)
    }
}

fn item(due: Due) -> Item {
    let (id, command) = match due {
        Due::Wake { task, wakeup } => (task, Command::Wake(wakeup)),
        Due::TimeOut(claimed) => {
            let attempt =
                Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at: Some(claimed.at) };
            (claimed.id.task, Command::TimeOut(attempt))
        }
        Due::Taken(claimed) => {
            let attempt =
                Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at: Some(claimed.at) };
            (claimed.id.task, Command::Taken(attempt))
        }
        Due::GiveUp { task, key, attempt } => {
            (task, Command::Lose(Attempt { key, number: attempt, started_at: None }))
        }
        Due::Park { task, key, attempt } => {
            (task, Command::Park(Attempt { key, number: attempt, started_at: None }))
        }
    };
    Item::Task { id, command, claim: None, logs: Vec::new() }
}
