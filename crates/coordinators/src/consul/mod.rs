//! Consul: a session with a TTL, and a key that the session locks. The key is the name itself, as in Consul's
//! guide to leader election, so candidates of other programs may compete for it.
//!
//! A lease L is divided: the lock-delay is L/10, and the TTL is half of the rest, because Consul ends a session
//! as late as twice its TTL.
//!
//! | bound | why |
//! |---|---|
//! | the leader acts for one TTL, 0.45 L | Consul promises not to end a session before its TTL |
//! | takeover after a kill: L | twice the TTL, and then nobody gets the key during the lock-delay |
//! | takeover after a resignation: at once | the key is released before the session is destroyed: that has no lock-delay |
//!
//! A server only accepts TTLs of at least 10 s by default, so L is at least 22.3 s there. Its setting
//! `session_ttl_min` permits less. The session is not tied to the health of a node: Consul would end it earlier.
//!
//! The fence is the `ModifyIndex` of the key when it was locked: an index of the whole cluster. The `LockIndex`
//! begins again at 1 when the key was deleted. Observers see a higher fence if another program changes the key
//! under the leader.

mod api;
mod kv;
mod leadership;
mod standing;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{
    Campaign, Coordinator, CoordinatorError, Leader, Leadership, Withdrawal, address::Address, candidate,
    http::PATIENCE_MAX, stored,
};
use api::{Api, Entry};
use standing::Standing;

pub use kv::{Kv, KvChange, KvCommitted, KvEntry, KvList};

/// The port of the HTTP API.
const PORT: u16 = 8500;

/// A Consul cluster.
#[derive(Debug, Clone)]
pub struct Consul {
    address: Address,
    api: Arc<Api>,
}

impl Consul {
    /// Makes the coordinator of `consul://[:TOKEN@]HOST[:PORT][,…][/PREFIX]`, with the secret of an ACL token
    /// in place of a password. `consuls://` is for TLS, perhaps with `?cacert=FILE&cert=FILE&key=FILE` behind. Does not
    /// connect yet.
    ///
    /// # Errors
    /// When the URL is invalid, or a file for TLS cannot be used.
    pub fn new(url: &str) -> Result<Self, CoordinatorError> {
        Self::at(Address::read_with_tls(url, "consul", PORT)?)
    }

    /// The same with the secret of an ACL token that is not in the URL.
    ///
    /// # Errors
    /// When the URL or the token is invalid.
    pub fn with_token(url: &str, token: &str) -> Result<Self, CoordinatorError> {
        let address = Address::read_with_tls(url, "consul", PORT)?;
        Self::at(Address { password: Some(token.to_owned()), ..address })
    }

    fn at(address: Address) -> Result<Self, CoordinatorError> {
        Ok(Self { api: Arc::new(Api::new(&address)?), address })
    }

    /// The key-value store of the cluster, with the same addresses and token. The prefix of the URL does not count
    /// there.
    ///
    /// # Errors
    /// When no HTTP client can be set up.
    pub fn kv(&self) -> Result<Kv, CoordinatorError> {
        Ok(Kv::new(Api::new(&self.address)?))
    }
}

/// The leader of whom this key is, while it is locked.
fn leader(entry: &Entry) -> Option<Leader> {
    let found = entry.found.as_ref()?;
    found.session.as_ref()?;
    Some(stored::decode(&found.value, found.modify_index))
}

#[async_trait]
impl Coordinator for Consul {
    fn name(&self) -> &str {
        &self.address.name
    }

    fn check(&self, campaign: &Campaign) -> Result<(), CoordinatorError> {
        campaign.check()
    }

    async fn campaign_until(
        &self,
        campaign: &Campaign,
        withdrawn: Withdrawal<'_>,
    ) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        self.check(campaign)?;
        let standing = Standing::new(Arc::clone(&self.api), self.address.key(&campaign.name), campaign);
        candidate::until_elected(standing, campaign.lease, withdrawn).await
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, CoordinatorError> {
        Ok(leader(&self.api.read(&self.address.key(name), PATIENCE_MAX).await?))
    }

    async fn watch(
        &self,
        name: &str,
        seen: Option<u64>,
        wait: Duration,
    ) -> Result<Option<Leader>, CoordinatorError> {
        let until = Instant::now() + wait;
        let key = self.address.key(name);
        let mut entry = self.api.read(&key, PATIENCE_MAX).await?;
        loop {
            let leader = leader(&entry);
            let left = until.saturating_duration_since(Instant::now());
            if leader.as_ref().map(|leader| leader.fence) != seen || left.is_zero() {
                return Ok(leader);
            }
            entry = self.api.change(&key, entry.index, left.min(PATIENCE_MAX), PATIENCE_MAX).await?;
        }
    }
}
