//! etcd by its JSON gateway, in the layout of its own election recipe (`etcdctl elect`): each candidate has a
//! lease and a key below the name. The key with the lowest create revision leads, and that revision is the fence.
//!
//! | bound | why |
//! |---|---|
//! | the leader acts for one TTL | etcd counts a lease from when it granted or renewed it, and a new etcd leader begins each lease again |
//! | takeover after a kill: the lease and 0.5 s | TTLs are whole seconds, so the lease is rounded down. etcd looks for ended leases twice a second |
//! | takeover after a resignation: at once | the lease is revoked, which deletes the key, which the next candidate watches |
//!
//! A revision is a counter of the whole cluster: it also grows when keys are deleted.

mod api;
mod entry;
mod leadership;
mod watching;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{
    Campaign, Coordinator, CoordinatorError, Leader, Leadership, Withdrawal, address::Address, candidate,
    http::PATIENCE_MAX, stored,
};
use api::Api;
use entry::Standing;

/// The port of clients.
const PORT: u16 = 2379;

/// An etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    address: Address,
    api: Arc<Api>,
}

impl Etcd {
    /// Makes the coordinator of `etcd://[USER:PASSWORD@]HOST[:PORT][,…][/PREFIX]`, or of `etcds://` for TLS, perhaps with
    /// `?cacert=FILE&cert=FILE&key=FILE` behind. Does not connect yet.
    ///
    /// # Errors
    /// When the URL is invalid, or a file for TLS cannot be used.
    pub fn new(url: &str) -> Result<Self, CoordinatorError> {
        let address = Address::read_with_tls(url, "etcd", PORT)?;
        Ok(Self { api: Arc::new(Api::new(&address)?), address })
    }

    /// The keys of a name's candidates begin with this.
    fn folder(&self, name: &str) -> String {
        format!("{}/", self.address.key(name))
    }
}

#[async_trait]
impl Coordinator for Etcd {
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
        let standing = Standing::new(Arc::clone(&self.api), self.folder(&campaign.name), campaign);
        candidate::until_elected(standing, campaign.lease, withdrawn).await
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, CoordinatorError> {
        let (first, _) = self.api.first(&self.folder(name), PATIENCE_MAX).await?;
        let Some(first) = first else { return Ok(None) };
        let found = self.api.read(&first.key, PATIENCE_MAX).await?;
        Ok(found.map(|found| stored::decode(&found.value, found.create_revision)))
    }

    async fn watch(
        &self,
        name: &str,
        seen: Option<u64>,
        wait: Duration,
    ) -> Result<Option<Leader>, CoordinatorError> {
        let until = Instant::now() + wait;
        let folder = self.folder(name);
        loop {
            let (_, revision) = self.api.first(&folder, PATIENCE_MAX).await?;
            let leader = self.leader(name).await?;
            let left = until.saturating_duration_since(Instant::now());
            if leader.as_ref().map(|leader| leader.fence) != seen || left.is_zero() {
                return Ok(leader);
            }
            self.api.change(&folder, true, revision + 1, left.min(PATIENCE_MAX)).await?;
        }
    }
}
