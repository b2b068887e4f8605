//! A leader's session and key.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::{
    api::{Api, Entry},
    standing::Session,
};
use crate::{CoordinatorError, Leadership, candidate::PAUSE};

/// A leader.
pub(super) struct ConsulLeadership {
    pub(super) api: Arc<Api>,
    pub(super) key: String,
    pub(super) stored: String,
    pub(super) session: Session,
    pub(super) fence: u64,
    pub(super) patience: Duration,
    pub(super) renew_every: Duration,
}

impl ConsulLeadership {
    /// Whether the session of the leader still locks the key. The session does not end when an operator deletes
    /// the key.
    fn has_key(&self, entry: &Entry) -> Result<(), CoordinatorError> {
        if entry.fence_of(&self.session.id).is_some() {
            Ok(())
        } else {
            Err(CoordinatorError::Lost("the session of the leader does not lock the key any more".to_owned()))
        }
    }

    /// Looks at the key until the session does not lock it any more.
    async fn watch(&self) -> Result<(), CoordinatorError> {
        let mut entry = self.api.read(&self.key, self.patience).await?;
        loop {
            self.has_key(&entry)?;
            entry = self.api.change(&self.key, entry.index, self.renew_every, self.patience).await?;
        }
    }
}

#[async_trait]
impl Leadership for ConsulLeadership {
    fn fence(&self) -> u64 {
        self.fence
    }

    fn acts_until(&self) -> Instant {
        self.session.bound.until()
    }

    async fn renew(&self) -> Result<(), CoordinatorError> {
        let sent = Instant::now();
        let renewed = async {
            self.api.renew(&self.session.id, self.patience).await?;
            self.has_key(&self.api.read(&self.key, self.patience).await?)
        };
        self.session.bound.answered(sent, renewed.await)
    }

    async fn ended(&self) {
        let watching = async {
            loop {
                if let Err(CoordinatorError::Lost(_)) = self.watch().await {
                    return self.session.bound.end();
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = watching => {}
            () = self.session.bound.over() => {}
        }
    }

    async fn resign(&self) -> Result<(), CoordinatorError> {
        self.session.bound.end();
        // First the key: a session that ends with a key has a lock-delay.
        self.api.unlock(&self.key, &self.stored, &self.session.id, self.patience).await?;
        self.api.destroy(&self.session.id, self.patience).await
    }
}
