//! A coordinator that chooses who leads, and a Windlass server that confirms it: the fence is the store's.
//!
//! Fences of different products cannot be compared, and one product's fence falls when it is restored from a backup. The
//! fence of the store never does. So who is elected also takes the store's lock for the name, and acts under its fence.
//! Two candidates that know different coordinators by mistake, and are both elected, cannot both have the lock.
//!
//! | bound | why |
//! |---|---|
//! | the leader acts for the shorter one of the two bounds | both must stand |
//! | takeover after a kill: the lease and 1 s | candidates that wait ask the server for the leader, so it has seen the last renewal of both leases |
//! | takeover after a resignation: 0.5 s | the lock is released first |

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::{FutureExt as _, future::join};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{Campaign, Coordinator, CoordinatorError, Leader, Leadership, Windlass, Withdrawal};

/// How often a candidate that waits asks the server for the leader: the server counts leases of leaders it is asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much longer than a lease the lock may be somebody else's. After that, that one is alive.
const CONTESTED_AFTER: Duration = Duration::from_secs(2);

/// A coordinator whose elections a Windlass server confirms.
pub struct Confirmed {
    name: String,
    chooser: Arc<dyn Coordinator>,
    store: Windlass,
}

impl Confirmed {
    /// `chooser` elects, `store` confirms. Does not connect yet.
    #[must_use]
    pub fn new(chooser: Arc<dyn Coordinator>, store: Windlass) -> Self {
        Self { name: format!("{} {}", chooser.name(), store.name()), chooser, store }
    }

    /// Has the server see the renewals of the present leader, for ever.
    async fn look(&self, campaign: &Campaign) {
        loop {
            // A server that does not answer counts from when it answers.
            let _ = self.store.leader(&campaign.name).await;
            sleep(LOOK_EVERY.min(campaign.renew_every())).await;
        }
    }

    /// Takes the store's lock for a candidate that was chosen. `None` if it was withdrawn.
    async fn confirm(
        &self,
        campaign: &Campaign,
        chosen: &dyn Leadership,
        withdrawn: impl Future<Output = ()> + Send,
    ) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        let mut is_withdrawn = false;
        let stops = async {
            tokio::select! {
                () = withdrawn => is_withdrawn = true,
                () = sleep(campaign.lease + CONTESTED_AFTER) => {}
                () = keep(chosen, campaign.renew_every()) => {}
                () = chosen.ended() => {}
            }
        };
        let confirmed = self.store.campaign_until(campaign, Box::pin(stops)).await?;
        if confirmed.is_some() || is_withdrawn {
            return Ok(confirmed);
        }
        if Instant::now() >= chosen.acts_until() {
            let why = format!(
                "{} has ended the leadership before {} confirmed it",
                self.chooser.name(),
                self.store.name()
            );
            return Err(CoordinatorError::Unavailable(why));
        }
        let other = self.store.leader(&campaign.name).await?;
        Err(CoordinatorError::Contested(format!(
            "{} has elected this candidate, but at {} the leader of {} is {}, which is alive: give all candidates of a name the same coordinator",
            self.chooser.name(),
            self.store.name(),
            campaign.name,
            other.map_or_else(|| "somebody else".to_owned(), |leader| leader.id)
        )))
    }
}

/// Renews until the leadership is lost.
async fn keep(chosen: &dyn Leadership, every: Duration) {
    loop {
        sleep(every).await;
        if let Err(CoordinatorError::Lost(_)) = chosen.renew().await {
            return;
        }
    }
}

#[async_trait]
impl Coordinator for Confirmed {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, campaign: &Campaign) -> Result<(), CoordinatorError> {
        self.chooser.check(campaign)?;
        self.store.check(campaign)
    }

    async fn campaign_until(
        &self,
        campaign: &Campaign,
        withdrawn: Withdrawal<'_>,
    ) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        self.check(campaign)?;
        let withdrawn = withdrawn.shared();
        let chosen = tokio::select! {
            chosen = self.chooser.campaign_until(campaign, Box::pin(withdrawn.clone())) => chosen?,
            () = self.look(campaign) => None,
        };
        let Some(chosen) = chosen else { return Ok(None) };
        match self.confirm(campaign, &*chosen, withdrawn).await {
            Ok(Some(confirmed)) => Ok(Some(Box::new(ConfirmedLeadership::new(chosen, confirmed, campaign)))),
            other => {
                // If this fails, it ends by its lease.
                let _ = chosen.resign().await;
                other
            }
        }
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, CoordinatorError> {
        self.store.leader(name).await
    }

    async fn watch(
        &self,
        name: &str,
        seen: Option<u64>,
        wait: Duration,
    ) -> Result<Option<Leader>, CoordinatorError> {
        self.store.watch(name, seen, wait).await
    }
}

/// A leader that was chosen and confirmed.
struct ConfirmedLeadership {
    chosen: Box<dyn Leadership>,
    confirmed: Arc<dyn Leadership>,
    /// How long a renewal waits for the store.
    patience: Duration,
    /// The renewal at the store that is under way.
    renewing: Mutex<Option<JoinHandle<()>>>,
}

impl ConfirmedLeadership {
    fn new(chosen: Box<dyn Leadership>, confirmed: Box<dyn Leadership>, campaign: &Campaign) -> Self {
        let patience = campaign.renew_every() / 2;
        Self { chosen, confirmed: confirmed.into(), patience, renewing: Mutex::default() }
    }

    fn renewing(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.renewing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews at the store. A slow commit goes on in the background: it must not delay the other renewals.
    async fn renew_confirmed(&self) {
        let under_way = self.renewing().take();
        let mut renewing = under_way.unwrap_or_else(|| {
            let confirmed = Arc::clone(&self.confirmed);
            // Whether it succeeds is in its bound.
            tokio::spawn(async move { drop(confirmed.renew().await) })
        });
        if timeout(self.patience, &mut renewing).await.is_err() {
            *self.renewing() = Some(renewing);
        }
    }

    fn renew_no_more(&self) {
        if let Some(renewing) = self.renewing().take() {
            renewing.abort();
        }
    }
}

#[async_trait]
impl Leadership for ConfirmedLeadership {
    fn fence(&self) -> u64 {
        self.confirmed.fence()
    }

    fn acts_until(&self) -> Instant {
        self.chosen.acts_until().min(self.confirmed.acts_until())
    }

    async fn renew(&self) -> Result<(), CoordinatorError> {
        let (renewed, ()) = join(self.chosen.renew(), self.renew_confirmed()).await;
        if renewed.is_ok() && Instant::now() >= self.confirmed.acts_until() {
            return Err(CoordinatorError::Lost(
                "the server has not renewed in time, or has another leader".to_owned(),
            ));
        }
        renewed
    }

    async fn ended(&self) {
        tokio::select! {
            () = self.chosen.ended() => {}
            () = self.confirmed.ended() => {}
        }
    }

    async fn resign(&self) -> Result<(), CoordinatorError> {
        self.renew_no_more();
        // The next one that is chosen waits for the lock.
        let released = self.confirmed.resign().await;
        self.chosen.resign().await.and(released)
    }
}

impl Drop for ConfirmedLeadership {
    fn drop(&mut self) {
        self.renew_no_more();
    }
}
