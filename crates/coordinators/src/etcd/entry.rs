//! A candidate's lease and key.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::{api::Api, leadership::EtcdLeadership};
use crate::{Bound, Campaign, CoordinatorError, Leadership, candidate::Candidate, http, stored};

/// A candidate.
pub(super) struct Standing {
    api: Arc<Api>,
    folder: String,
    stored: String,
    lease: Duration,
    renew_every: Duration,
    entry: Option<Entry>,
}

/// What a candidate has in etcd.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) lease: i64,
    pub(super) key: String,
    /// The create revision of the key, once it is known.
    pub(super) fence: Option<u64>,
    pub(super) bound: Bound,
    renewed: Instant,
}

impl Standing {
    pub(super) fn new(api: Arc<Api>, folder: String, campaign: &Campaign) -> Self {
        Self {
            api,
            folder,
            stored: stored::encode(campaign),
            lease: campaign.lease,
            renew_every: campaign.renew_every(),
            entry: None,
        }
    }

    fn patience(&self) -> Duration {
        http::patience(self.lease)
    }

    /// Grants a lease of whole seconds, not longer than the campaign's.
    async fn enter(&self) -> Result<Entry, CoordinatorError> {
        let sent = Instant::now();
        let wanted = self.lease.as_secs();
        let granted = self.api.grant(wanted, self.patience()).await?;
        if granted.seconds > wanted {
            // It ends by itself if this fails.
            let _ = self.api.revoke(granted.id, self.patience()).await;
            return Err(CoordinatorError::Invalid(format!(
                "the lease of {wanted} s is too short for this etcd: its minimum is {} s, from its election timeout",
                granted.seconds
            )));
        }
        let bound = Bound::new(Duration::from_secs(granted.seconds), sent);
        let key = format!("{}{:x}", self.folder, granted.id);
        Ok(Entry { lease: granted.id, key, fence: None, bound, renewed: sent })
    }
}

#[async_trait]
impl Candidate for Standing {
    async fn step(&mut self) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        let patience = self.patience();
        if self.entry.is_none() {
            self.entry = Some(self.enter().await?);
        }
        let Some(entry) = &mut self.entry else { return Ok(None) };
        if entry.renewed.elapsed() >= self.renew_every {
            let sent = Instant::now();
            self.api.keep_alive(entry.lease, patience).await?;
            entry.bound.renewed(sent);
            entry.renewed = sent;
        }
        let fence = match entry.fence {
            Some(fence) => fence,
            None => self.api.create(&entry.key, &self.stored, entry.lease, patience).await?,
        };
        entry.fence = Some(fence);
        let (before, revision) = self.api.before(&self.folder, fence, patience).await?;
        if let Some(before) = before {
            self.api.change(&before.key, false, revision + 1, self.renew_every).await?;
            return Ok(None);
        }
        // An operator may have deleted the key meanwhile.
        let found = self.api.read(&entry.key, patience).await?;
        if found.is_none_or(|found| found.create_revision != fence) {
            return Err(CoordinatorError::Lost("the key of the candidate was deleted".to_owned()));
        }
        let Some(entry) = self.entry.take() else { return Ok(None) };
        let leadership = EtcdLeadership::new(Arc::clone(&self.api), entry, fence, patience, self.renew_every);
        Ok(Some(Box::new(leadership)))
    }

    fn forget(&mut self) {
        self.entry = None;
    }

    async fn withdraw(&mut self) -> Result<(), CoordinatorError> {
        let Some(entry) = self.entry.take() else { return Ok(()) };
        self.api.revoke(entry.lease, self.patience()).await
    }
}
