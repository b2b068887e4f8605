//! The owner of a leadership.

use std::{
    fmt,
    future::{Future, pending},
    sync::Arc,
    time::Instant,
};

use futures_util::FutureExt as _;
use tokio::{sync::watch, task::JoinHandle};
use tracing::{debug, info, warn};
use windlass_coordinators::{Campaign, Coordinator, CoordinatorError, Leadership};

use super::{
    renewal,
    term::{State, Term},
};
use crate::pacing::Pacing;

/// How often a resignation is tried while the coordinator is unavailable.
const RESIGNATIONS_MAX: u32 = 3;

/// The elected leader of a name. It renews its leadership in the background every
/// [`Campaign::renew_every`], as long as this value exists.
///
/// A coordinator cannot stop a leader that was paused or cut off. Two rules exclude damage:
///
/// - Stop on your own clock. [`Leader::lost`] resolves when leadership has ended or its time is over, and
///   [`Leader::while_leading`] drops your work then. A renewal that fails does not end leadership before
///   [`Leader::acts_until`].
/// - Pass [`Leader::fence`] to the owner of every effect. It must refuse fences below the highest one that it
///   has seen.
///
/// ```no_run
/// use std::time::Duration;
/// use windlass_client::{
///     Leader,
///     coordinators::{Campaign, connect},
/// };
///
/// async fn close_the_books(fence: u64) { /* pass the fence to what has the effects */ }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let coordinator = connect("etcd://127.0.0.1:2379")?;
/// let campaign = Campaign::new("billing/nightly", "host-1", Duration::from_secs(15));
/// loop {
///     // Stands by until it is elected.
///     let leader = Leader::campaign(&*coordinator, &campaign).await?;
///     if leader.while_leading(close_the_books(leader.fence())).await.is_some() {
///         leader.resign().await?; // the next candidate leads at once
///         return Ok(());
///     }
///     // Leadership was lost in the middle of the work: campaign again.
/// }
/// # }
/// ```
///
/// Dropping it stops the renewals and sends nothing: leadership then ends by the lease.
pub struct Leader {
    term: Term,
    /// None after a resignation.
    leadership: Option<Arc<dyn Leadership>>,
    renewing: JoinHandle<()>,
}

impl Leader {
    /// Campaigns for a name, and returns when this candidate leads. While the coordinator is unavailable it
    /// tries again and again. Dropping the future ends the campaign.
    ///
    /// Must be called inside of a Tokio runtime with time and input and output.
    ///
    /// # Errors
    /// [`CoordinatorError::Invalid`] if the coordinator does not support the campaign,
    /// [`CoordinatorError::Refused`] if it denies access.
    pub async fn campaign(
        coordinator: &dyn Coordinator,
        campaign: &Campaign,
    ) -> Result<Self, CoordinatorError> {
        loop {
            if let Some(leader) = Self::campaign_until(coordinator, campaign, pending()).await? {
                return Ok(leader);
            }
        }
    }

    /// The same until `withdrawn` is ready. Then this candidate leaves the campaign, so that nobody waits for it, and
    /// `None` is returned. A candidate whose future is dropped leaves by its lease.
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_until(
        coordinator: &dyn Coordinator,
        campaign: &Campaign,
        withdrawn: impl Future<Output = ()> + Send,
    ) -> Result<Option<Self>, CoordinatorError> {
        coordinator.check(campaign)?;
        let withdrawn = withdrawn.shared();
        let mut pacing = Pacing::default();
        let mut is_first = true;
        loop {
            let error = match coordinator.campaign_until(campaign, Box::pin(withdrawn.clone())).await {
                Ok(leadership) => {
                    return Ok(leadership.map(|leadership| Self::elected(leadership.into(), campaign)));
                }
                Err(error) if !error.is_passing() => return Err(error),
                Err(error) => error,
            };
            if std::mem::take(&mut is_first) {
                // Logged once: an outage may last, and an operator must see why nobody is elected.
                warn!(coordinator = coordinator.name(), name = campaign.name, %error, "cannot campaign; retrying");
            } else {
                debug!(coordinator = coordinator.name(), name = campaign.name, %error, "cannot campaign; retrying");
            }
            tokio::select! {
                () = tokio::time::sleep(pacing.failed()) => {}
                () = withdrawn.clone() => return Ok(None),
            }
        }
    }

    fn elected(leadership: Arc<dyn Leadership>, campaign: &Campaign) -> Self {
        let fence = leadership.fence();
        info!(name = campaign.name, id = campaign.id, fence, "elected");
        let (sender, states) = watch::channel(State::new(Instant::now(), leadership.acts_until()));
        let renewing = renewal::keep(leadership.clone(), campaign.clone(), sender);
        Self {
            term: Term::new(fence, states),
            leadership: Some(leadership),
            renewing: tokio::spawn(renewing),
        }
    }

    /// A view of this leadership for others, which may be cloned.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// Higher than the fence of each earlier leader of this name.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.term.fence()
    }

    /// Until then the leader may act: see [`Term::acts_until`].
    #[must_use]
    pub fn acts_until(&self) -> Instant {
        self.term.acts_until()
    }

    /// Waits until leadership is at risk, so that work that takes time to stop must begin to stop: see
    /// [`Term::at_risk`].
    pub async fn at_risk(&self) {
        self.term.at_risk().await;
    }

    /// Waits until leadership is lost: see [`Term::lost`].
    pub async fn lost(&self) {
        self.term.lost().await;
    }

    /// Runs `work` as long as this candidate leads. None if leadership was lost first: `work` is dropped then.
    pub async fn while_leading<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.lost() => None,
            done = work => Some(done),
        }
    }

    /// Gives up leadership, so that the next candidate leads at once. From the call on nothing may act.
    ///
    /// # Errors
    /// When this is uncertain: then leadership ends by the lease.
    pub async fn resign(mut self) -> Result<(), CoordinatorError> {
        self.renewing.abort();
        // Once it has ended, the term is lost for all who have it.
        let _ = (&mut self.renewing).await;
        let Some(leadership) = self.leadership.take() else { return Ok(()) };
        let mut pacing = Pacing::default();
        for tries in 1.. {
            match leadership.resign().await {
                Err(error) if error.is_passing() && tries < RESIGNATIONS_MAX => {
                    tokio::time::sleep(pacing.failed()).await;
                }
                // What has ended needs no resignation.
                Ok(()) | Err(CoordinatorError::Lost(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leader").field(&self.term).finish()
    }
}
