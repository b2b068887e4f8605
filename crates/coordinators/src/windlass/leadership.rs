//! A leader.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::api::Api;
use crate::{Bound, Campaign, CoordinatorError, Leadership, candidate::PAUSE};

/// How often the server is asked whether the leadership goes on, beside renewals.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A leader.
pub(super) struct WindlassLeadership {
    pub(super) api: Arc<Api>,
    pub(super) campaign: Campaign,
    pub(super) number: String,
    pub(super) fence: u64,
    pub(super) bound: Bound,
}

impl WindlassLeadership {
    fn patience(&self) -> Duration {
        self.api.patience(self.campaign.lease)
    }

    /// Waits until the server names another leader, or none.
    async fn watch(&self) -> Result<(), CoordinatorError> {
        loop {
            let leader = self.api.leader(&self.campaign.name, self.patience()).await?;
            if leader.is_none_or(|leader| leader.fence != self.fence) {
                return Err(lost());
            }
            tokio::time::sleep(LOOK_EVERY.min(self.campaign.renew_every())).await;
        }
    }
}

fn lost() -> CoordinatorError {
    CoordinatorError::Lost("the server has another leader, or none".to_owned())
}

#[async_trait]
impl Leadership for WindlassLeadership {
    fn fence(&self) -> u64 {
        self.fence
    }

    fn acts_until(&self) -> Instant {
        self.bound.until()
    }

    async fn renew(&self) -> Result<(), CoordinatorError> {
        let sent = Instant::now();
        let (campaign, number, fence) = (&self.campaign, &self.number, Some(self.fence));
        let renewed = self.api.campaign(campaign, number, fence, Duration::ZERO, self.patience()).await;
        self.bound.answered(sent, renewed.and_then(|fence| fence.map(drop).ok_or_else(lost)))
    }

    async fn ended(&self) {
        let watching = async {
            loop {
                if let Err(CoordinatorError::Lost(_)) = self.watch().await {
                    return self.bound.end();
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = watching => {}
            () = self.bound.over() => {}
        }
    }

    async fn resign(&self) -> Result<(), CoordinatorError> {
        self.bound.end();
        self.api.resign(&self.campaign.name, &self.number, self.patience()).await
    }
}
