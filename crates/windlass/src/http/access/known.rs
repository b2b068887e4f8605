//! The access tokens as this server knows them: all of them, in memory, read again after a short time.
//!
//! The store has at most [`ACCESS_TOKENS_MAX`](windlass_engine::ACCESS_TOKENS_MAX) of them, so ids that somebody makes up take neither memory
//! nor more than five reads of the store in a second.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use windlass_core::{Millis, Timestamp};
use windlass_engine::{AccessToken, AccessTokenId, Engine, EngineError};

/// How long what was read of the store counts: a token that was revoked on another server is refused here after that.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(2);

/// How soon the store is read again for an id that is not known: another server may have created it a moment ago.
const UNKNOWN_FOR: Duration = Duration::from_millis(200);

/// How exactly the last use of a token is stored.
const USE_STEP: Millis = Millis::from_secs(60);

/// A token, and when it was last used here.
#[derive(Debug)]
pub(crate) struct KnownToken {
    pub(crate) token: AccessToken,
    /// In milliseconds since 1970; 0 = not here.
    used_at: AtomicI64,
}

impl KnownToken {
    fn new(token: AccessToken, used_at: i64) -> Self {
        Self { token, used_at: AtomicI64::new(used_at) }
    }

    /// It is used now.
    pub(super) fn note_use(&self, now: Timestamp) {
        self.used_at.store(now.0, Ordering::Relaxed);
    }

    /// When it was last used here, where the store should know it.
    pub(super) fn use_to_store(&self) -> Option<Timestamp> {
        let used_at = Timestamp(self.used_at.load(Ordering::Relaxed));
        let is_news = |stored: Timestamp| used_at >= stored + USE_STEP;
        (used_at.0 > 0 && self.token.used_at.is_none_or(is_news)).then_some(used_at)
    }
}

/// All tokens.
#[derive(Debug, Default)]
pub(super) struct KnownTokens {
    list: Mutex<List>,
    /// One request reads for all that wait.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct List {
    by_id: HashMap<AccessTokenId, Arc<KnownToken>>,
    /// When the reading of it began; `None` = never, or tokens have changed here since.
    read_at: Option<Instant>,
    /// When tokens were last changed here.
    changed_at: Option<Instant>,
    /// When the last reading failed, and how.
    failure: Option<(Instant, EngineError)>,
}

impl KnownTokens {
    /// The token with this id.
    pub(super) async fn find(
        &self,
        engine: &Engine,
        id: AccessTokenId,
    ) -> Result<Option<Arc<KnownToken>>, EngineError> {
        if let Some(found) = self.look(id) {
            return Ok(found);
        }
        let asked_at = Instant::now();
        let _reading = self.reading.lock().await;
        if let Some(found) = self.look(id) {
            return Ok(found);
        }
        // All that waited for a reading that failed get its error: one after the other they would wait for ever longer.
        if let Some((failed_at, error)) = &self.lock().failure
            && *failed_at > asked_at
        {
            return Err(error.clone());
        }
        let read_at = Instant::now();
        let read = engine.access_tokens().await;
        let mut list = self.lock();
        list.failure = read.as_ref().err().map(|error| (Instant::now(), error.clone()));
        let tokens = read?;
        let used = |id| list.by_id.get(&id).map_or(0, |known| known.used_at.load(Ordering::Relaxed));
        let known = |token: AccessToken| (token.id, Arc::new(KnownToken::new(token.clone(), used(token.id))));
        let by_id = tokens.into_iter().map(known).collect();
        let is_current = list.changed_at.is_none_or(|changed_at| changed_at < read_at);
        list.by_id = by_id;
        list.read_at = is_current.then_some(read_at);
        Ok(list.by_id.get(&id).cloned())
    }

    /// What is known of an id; `None` if the store must be read.
    fn look(&self, id: AccessTokenId) -> Option<Option<Arc<KnownToken>>> {
        let list = self.lock();
        let age = list.read_at?.elapsed();
        let found = list.by_id.get(&id);
        let counts_for = if found.is_some() { KNOWN_FOR } else { UNKNOWN_FOR };
        (age < counts_for).then(|| found.cloned())
    }

    /// Tokens were changed here: the next request reads the store.
    pub(super) fn forget(&self) {
        let mut list = self.lock();
        list.changed_at = Some(Instant::now());
        list.read_at = None;
    }

    /// Tokens whose last use the store should know.
    pub(super) fn uses(&self) -> Vec<(Arc<KnownToken>, Timestamp)> {
        let list = self.lock();
        list.by_id.values().filter_map(|known| Some((known.clone(), known.use_to_store()?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::Name;
    use windlass_engine::{ACCESS_RANDOM_BYTES, AccessRole, AccessSecret};

    use super::*;

    #[test]
    fn the_store_hears_of_a_use_once_in_a_minute() {
        let secret = AccessSecret::new(&[1; ACCESS_RANDOM_BYTES]);
        let token = AccessToken::new(Name::new("t").unwrap(), &secret, AccessRole::Viewer, Timestamp(1));
        let known = KnownToken::new(token.clone(), 0);
        assert_eq!(known.use_to_store(), None, "it was not used");
        known.note_use(Timestamp(100_000));
        assert_eq!(known.use_to_store(), Some(Timestamp(100_000)));
        let stored = KnownToken::new(AccessToken { used_at: Some(Timestamp(100_000)), ..token }, 100_000);
        assert_eq!(stored.use_to_store(), None);
        stored.note_use(Timestamp(159_999));
        assert_eq!(stored.use_to_store(), None);
        stored.note_use(Timestamp(160_000));
        assert_eq!(stored.use_to_store(), Some(Timestamp(160_000)));
    }
}
