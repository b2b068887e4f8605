//! Polls for changes of other servers on the same store that concern clients of this one: attempts that its workers
//! must stop, and tasks that its clients watch.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_core::{Millis, TaskId};
use windlass_store::Now;

use crate::{Engine, EngineError, RoundsOf};

/// Polls for changes of other servers.
pub struct ChangePoller {
    engine: Arc<Engine>,
    /// The versions of watched tasks at the last poll, and when that was.
    seen: Mutex<BTreeMap<TaskId, (Option<u64>, Millis)>>,
}

/// How long a version is remembered after the task was last watched: a dismissed watcher returns before that.
const REMEMBERED: Millis = Millis::from_secs(10);

impl ChangePoller {
    /// A change poller of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, seen: Mutex::default() }
    }

    /// Asks workers to stop attempts, and dismisses watchers of changed tasks so that they read the store again.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn run_once(&self, now: Now) -> Result<(), EngineError> {
        if !self.engine.store.is_shared() {
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

    /// A watcher may have read a task just before another server changed it, and before the first poll of this task: so
    /// the first poll dismisses the watcher as well.
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
