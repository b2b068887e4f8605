//! Access tokens: creating, listing and revoking them.
//!
//! An access token is a record of the store. The HTTP interface asks for one with each request; the tokens of attempts, which
//! authorize reports, are something else ([`Tokens`](crate::Tokens)).

mod secret;
mod stored;
mod token;

use windlass_core::{Name, Timestamp};
use windlass_store::{Change, Now, Record, RecordChange, RecordKind, StoreError};

use crate::{
    Engine, EngineError,
    deciding::inbox::{Item, Reply},
};

pub use secret::{ACCESS_RANDOM_BYTES, AccessSecret, AccessTokenId, is_same_hash};
pub use token::{
    ACCESS_SCOPE_NAMES_MAX, ACCESS_TOKEN_LIFE_MAX, AccessRole, AccessScope, AccessToken, AccessTokenFault,
};

/// The maximum number of access tokens of a store: each server keeps all of them in memory.
pub const ACCESS_TOKENS_MAX: usize = 1_000;

/// How often a change of a token is tried again that conflicts with other changes.
const TRIES_MAX: usize = 8;

impl Engine {
    /// Stores a new access token.
    ///
    /// # Errors
    /// When it cannot work as described, another one has its name or its id, there are too many, or the store fails.
    pub async fn create_access_token(
        &self,
        token: AccessToken,
        now: Now,
    ) -> Result<AccessToken, EngineError> {
        token.check(now.wall)?;
        for _ in 0..TRIES_MAX {
            let generation = self.store.generation();
            let records = self.store.records(RecordKind::AccessToken, None, ACCESS_TOKENS_MAX).await?;
            let has_id = |record: &Record| stored::decode(record).is_ok_and(|other| other.id == token.id);
            if records.iter().any(|record| record.name == token.name || has_id(record)) {
                return Err(EngineError::AccessTokenExists(token.name));
            }
            if records.len() >= ACCESS_TOKENS_MAX {
                return Err(EngineError::TooManyAccessTokens);
            }
            let body = stored::encode(&token);
            let change = RecordChange::create(RecordKind::AccessToken, token.name.clone(), body, now.wall);
            if self.commit_access_token(change.decided_in(generation)).await? {
                return Ok(token);
            }
        }
        Err(EngineError::Conflict)
    }

    /// All access tokens, by name. A change that is not on disk yet may be seen. Tokens that cannot be read are left out, so
    /// nobody can use them.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn access_tokens(&self) -> Result<Vec<AccessToken>, EngineError> {
        // Without waiting for the disk: a full disk would keep everybody out.
        let records = self.store.records(RecordKind::AccessToken, None, ACCESS_TOKENS_MAX).await?;
        let read = |record: &Record| match stored::decode(record) {
            Ok(token) => Some(token),
            Err(error) => {
                tracing::warn!(%error, "an access token is left out");
                None
            }
        };
        Ok(records.iter().filter_map(read).collect())
    }

    /// Revokes an access token: deletes it. Returns what it was.
    ///
    /// # Errors
    /// When it does not exist, or the store fails. Also when its record cannot be read, which is deleted nevertheless.
    pub async fn revoke_access_token(&self, name: &Name) -> Result<AccessToken, EngineError> {
        for _ in 0..TRIES_MAX {
            let (record, generation) = self.access_token_record(name).await?;
            if self.commit_access_token(RecordChange::delete(&record).decided_in(generation)).await? {
                return Ok(stored::decode(&record)?);
            }
        }
        Err(EngineError::Conflict)
    }

    /// Gives the token of this name another secret: the old one is refused from then on.
    ///
    /// # Errors
    /// When it does not exist, the token cannot work as described, or the store fails.
    pub async fn replace_access_token(
        &self,
        token: AccessToken,
        now: Now,
    ) -> Result<AccessToken, EngineError> {
        token.check(now.wall)?;
        for _ in 0..TRIES_MAX {
            let (record, generation) = self.access_token_record(&token.name).await?;
            let change = update(&record, &token, generation);
            if self.commit_access_token(change).await? {
                return Ok(token);
            }
        }
        Err(EngineError::Conflict)
    }

    /// Stores when a token was last used, if it still is the one with this id, and the time is later than the stored one. It
    /// is tried once: a change by others comes first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn note_access_use(
        &self,
        name: &Name,
        id: AccessTokenId,
        at: Timestamp,
    ) -> Result<(), EngineError> {
        let (record, generation) = match self.access_token_record(name).await {
            // It was revoked.
            Err(EngineError::UnknownAccessToken(_)) => return Ok(()),
            found => found?,
        };
        let Ok(token) = stored::decode(&record) else { return Ok(()) };
        if token.id != id || token.used_at.is_some_and(|used_at| used_at >= at) {
            return Ok(());
        }
        let token = AccessToken { used_at: Some(at), ..token };
        self.commit_access_token(update(&record, &token, generation)).await?;
        Ok(())
    }

    async fn access_token_record(&self, name: &Name) -> Result<(Record, u64), EngineError> {
        let generation = self.store.generation();
        let names = std::slice::from_ref(name);
        let records = self.store.records_by_name(RecordKind::AccessToken, names).await?;
        let record = records.into_iter().flatten().next();
        record.map(|record| (record, generation)).ok_or_else(|| EngineError::UnknownAccessToken(name.clone()))
    }

    /// Returns false if the record has changed since it was read.
    async fn commit_access_token(&self, change: RecordChange) -> Result<bool, StoreError> {
        let reply = self.inbox.decide(vec![Item::Change(Change::Record(change))]).await?.pop();
        Ok(matches!(reply, Some(Reply::Done)))
    }
}

/// Writes the next state of a token over a record.
fn update(record: &Record, token: &AccessToken, generation: u64) -> RecordChange {
    let change = RecordChange::update(record, stored::encode(token));
    change.decided_in(generation)
}
