//! Looks at what other servers on the same store did, as far as it concerns those who talk to this one: attempts that
//! workers are to stop, and tasks that somebody watches.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_core::{Millis, TaskId};
use windlass_store::Now;

use crate::{Engine, EngineError, RoundsOf};

/// Looks at what other servers did.
pub struct ChangePoller {
    engine: Arc<Engine>,
    /// The versions of watched tasks when they were last looked at, and when that was.
    seen: Mutex<BTreeMap<TaskId, (Option<u64>, Millis)>>,
}

/// So long after a task was last watched its version is remembered: whoever was sent away comes back before.
const REMEMBERED: Millis = Millis::from_secs(10);

impl ChangePoller {
    /// A change poller of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, seen: Mutex::default() }
    }

    /// Tells workers what to stop, and sends watchers to look at the store again where a task has changed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn run_once(&self, now: Now) -> Result<(), EngineError> {
        if self.engine.store.cluster().is_none() {
            return Ok(());
        }
        self.engine.rounds.note(RoundsOf::ChangePoller, self.round(now).await)
    }

    async fn round(&self, now: Now) -> Result<(), EngineError> {
        self.look_for_stops(now).await?;
        self.look_at_watched(now).await
    }

    async fn look_for_stops(&self, now: Now) -> Result<(), EngineError> {
        let polling = self.engine.sessions.lock().polling();
        if polling.is_empty() {
            return Ok(());
        }
        for claimed in self.engine.store.to_stop(&polling).await? {
            if !self.engine.is_cancelled(claimed.session, &claimed.id) {
                self.engine.cancel(claimed.session, &claimed.id, now);
            }
        }
        Ok(())
    }

    /// A watcher may have read a task just before another server changed it, and before this first looked at it: so
    /// the first look sends it away as well.
    async fn look_at_watched(&self, now: Now) -> Result<(), EngineError> {
        let watched = self.engine.feed.watched();
        let found =
            if watched.is_empty() { Vec::new() } else { self.engine.store.versions(&watched).await? };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (task, version) in watched.into_iter().zip(found) {
            let before = seen.insert(task, (version, now.mono));
            if before.is_none_or(|(before, _)| before != version) {
                self.engine.feed.dismiss(task);
            }
        }
        seen.retain(|_, (_, at)| now.mono.0 < at.0.saturating_add(REMEMBERED.0));
        Ok(())
    }
}
