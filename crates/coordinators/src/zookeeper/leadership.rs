//! A leader's session and node.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{latch::Latch, session::Session};
use crate::{CoordinatorError, Leadership, candidate::PAUSE};

/// A leader.
pub(super) struct ZooKeeperLeadership {
    pub(super) session: Session,
    pub(super) folder: String,
    /// The name of its node.
    pub(super) node: String,
    pub(super) fence: u64,
    pub(super) renew_every: Duration,
}

impl ZooKeeperLeadership {
    fn latch(&self) -> Latch<'_> {
        Latch::new(&self.session, &self.folder)
    }

    /// Waits for a change of the node, and looks at it.
    async fn look(&self) -> Result<(), CoordinatorError> {
        self.latch().change(&self.node, self.renew_every).await?;
        match self.latch().stat(&self.node, false).await? {
            Some(_) => Ok(()),
            None => Err(CoordinatorError::Lost("the node of the leader was deleted".to_owned())),
        }
    }
}

#[async_trait]
impl Leadership for ZooKeeperLeadership {
    fn fence(&self) -> u64 {
        self.fence
    }

    fn acts_until(&self) -> Instant {
        self.session.bound().until()
    }

    async fn renew(&self) -> Result<(), CoordinatorError> {
        let renewed = self.latch().confirm(&self.node).await;
        if let Err(CoordinatorError::Lost(_)) = &renewed {
            self.session.bound().end();
        }
        renewed
    }

    async fn ended(&self) {
        let watching = async {
            loop {
                match self.look().await {
                    Ok(()) => {}
                    Err(CoordinatorError::Lost(_)) => return self.session.bound().end(),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = self.session.bound().over() => {}
        }
    }

    async fn resign(&self) -> Result<(), CoordinatorError> {
        self.session.bound().end();
        // The next candidate waits for the end of the node, not for that of the session.
        self.latch().leave(&self.node).await?;
        self.session.close().await
    }
}
