//! Workers that work only while they lead.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use futures_util::{FutureExt, future::FusedFuture};
use tokio::sync::oneshot;
use tracing::{info, warn};
use windlass_coordinators::{Campaign, Coordinator, CoordinatorError};

use super::{Worker, WorkerBuilder};
use crate::{Error, Leader};

/// The name that a worker must lead, and where it campaigns.
pub(super) struct Exclusive {
    coordinator: Arc<dyn Coordinator>,
    campaign: Campaign,
}

impl WorkerBuilder {
    /// Works only while the worker leads this name: of all workers that campaign for it, one works. When
    /// leadership is at risk, the worker stops its attempts as at the loss of its lease, returns what it has not
    /// started, and campaigns again. After a shutdown it resigns when its attempts have ended, so that the next
    /// worker takes over at once.
    ///
    /// Pass the fence of [`Job::term`](crate::Job::term) to what has the effects of an attempt.
    pub fn exclusive(mut self, coordinator: Arc<dyn Coordinator>, campaign: Campaign) -> Self {
        self.exclusive = Some(Exclusive { coordinator, campaign });
        self
    }
}

impl Exclusive {
    /// Checks the campaign without connecting.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.coordinator.check(&self.campaign).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Campaigns, works while leading, and campaigns again, until it is shut down or stopped.
    pub(super) async fn run(
        &self,
        worker: &Worker,
        shutdown: Pin<&mut impl Future<Output = ()>>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let (mut shutdown, mut stop) = (shutdown.fuse(), stop.fuse());
        loop {
            info!(name = self.campaign.name, coordinator = self.coordinator.name(), "standing by");
            let (withdraw, withdrawn) = oneshot::channel::<()>();
            let campaign = Leader::campaign_until(&*self.coordinator, &self.campaign, withdrawn.map(drop));
            tokio::pin!(campaign);
            let elected = tokio::select! {
                elected = &mut campaign => elected,
                () = &mut shutdown => {
                    drop(withdraw);
                    campaign.await
                }
                () = &mut stop => return Ok(()),
            };
            let Some(leader) = elected.map_err(|error| self.refused(error))? else { return Ok(()) };
            if shutdown.is_terminated() {
                resign(leader).await;
                return Ok(());
            }
            let term = leader.term().clone();
            let ended = worker.session(Some(term), Pin::new(&mut shutdown), Pin::new(&mut stop)).await;
            // A worker that was stopped at once may still have processes that are about to end.
            if !stop.is_terminated() {
                resign(leader).await;
            }
            ended?;
            if shutdown.is_terminated() || stop.is_terminated() {
                return Ok(());
            }
        }
    }

    fn refused(&self, error: CoordinatorError) -> Error {
        Error::Coordinator { coordinator: self.coordinator.name().to_owned(), reason: Box::new(error) }
    }
}

/// Lets the next worker lead at once.
async fn resign(leader: Leader) {
    if let Err(error) = leader.resign().await {
        warn!(%error, "cannot resign: the next worker leads when the lease is over");
    }
}

impl fmt::Debug for Exclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exclusive")
            .field("coordinator", &self.coordinator.name())
            .field("campaign", &self.campaign)
            .finish()
    }
}
