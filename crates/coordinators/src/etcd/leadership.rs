//! A leader's lease and key.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::{api::Api, entry::Entry};
use crate::{CoordinatorError, Leadership, candidate::PAUSE};

/// A leader.
pub(super) struct EtcdLeadership {
    api: Arc<Api>,
    entry: Entry,
    fence: u64,
    patience: Duration,
    renew_every: Duration,
}

impl EtcdLeadership {
    pub(super) fn new(
        api: Arc<Api>,
        entry: Entry,
        fence: u64,
        patience: Duration,
        renew_every: Duration,
    ) -> Self {
        Self { api, entry, fence, patience, renew_every }
    }

    /// Whether the key is still the leader's. The lease does not end when an operator deletes the key.
    async fn has_key(&self) -> Result<(), CoordinatorError> {
        let found = self.api.read(&self.entry.key, self.patience).await?;
        if found.is_some_and(|found| found.create_revision == self.fence) {
            Ok(())
        } else {
            Err(CoordinatorError::Lost("the key of the leader was deleted".to_owned()))
        }
    }

    /// Waits for a change of the key, and looks at it.
    async fn look(&self) -> Result<(), CoordinatorError> {
        self.has_key().await?;
        self.api.change(&self.entry.key, false, self.fence + 1, self.renew_every).await
    }
}

#[async_trait]
impl Leadership for EtcdLeadership {
    fn fence(&self) -> u64 {
        self.fence
    }

    fn acts_until(&self) -> Instant {
        self.entry.bound.until()
    }

    async fn renew(&self) -> Result<(), CoordinatorError> {
        let sent = Instant::now();
        let renewed = async {
            self.api.keep_alive(self.entry.lease, self.patience).await?;
            self.has_key().await
        };
        self.entry.bound.answered(sent, renewed.await)
    }

    async fn ended(&self) {
        let watching = async {
            loop {
                match self.look().await {
                    Ok(()) => {}
                    Err(CoordinatorError::Lost(_)) => return self.entry.bound.end(),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = self.entry.bound.over() => {}
        }
    }

    async fn resign(&self) -> Result<(), CoordinatorError> {
        self.entry.bound.end();
        self.api.revoke(self.entry.lease, self.patience).await
    }
}
