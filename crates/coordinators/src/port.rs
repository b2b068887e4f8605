//! The port: the operations of a coordinator that Windlass uses.

use std::{
    future::pending,
    pin::Pin,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{Campaign, CoordinatorError, Leader};

/// Ready when a candidate stops waiting.
pub type Withdrawal<'w> = Pin<Box<dyn Future<Output = ()> + Send + 'w>>;

/// Elects leaders. It connects when it is first used, and again after a lost connection. Where the URL has
/// several addresses, a call tries them in turn, and the next call begins with the one that answered last.
///
/// Bounds, for an undisturbed network and servers that answer:
///
/// | event | the next candidate leads after at most |
/// |---|---|
/// | the leader was killed, or lost its connection | its [`Campaign::lease`] and 1 s |
/// | the leader resigned | 0.5 s |
#[async_trait]
pub trait Coordinator: Send + Sync + 'static {
    /// Its name for log messages: its URL without user and password.
    fn name(&self) -> &str;

    /// Checks a campaign without connecting. [`campaign`](Self::campaign) returns the same error.
    ///
    /// # Errors
    /// [`CoordinatorError::Invalid`] if the product does not support such a name or lease.
    fn check(&self, campaign: &Campaign) -> Result<(), CoordinatorError>;

    /// Campaigns for a name, and returns when this candidate leads. Two candidates may have the same id: only
    /// one of them leads.
    ///
    /// While the coordinator is unavailable this waits for up to one lease, and then fails. Dropping the future
    /// ends the campaign: what it left behind ends with the lease.
    ///
    /// # Errors
    /// All but [`CoordinatorError::Lost`].
    async fn campaign(&self, campaign: &Campaign) -> Result<Box<dyn Leadership>, CoordinatorError> {
        loop {
            if let Some(leadership) = self.campaign_until(campaign, Box::pin(pending())).await? {
                return Ok(leadership);
            }
        }
    }

    /// The same until `withdrawn` is ready. Then the candidate leaves nothing behind that others would wait for, if the
    /// coordinator answers, and this returns `None`: within 2.5 s.
    ///
    /// # Errors
    /// All but [`CoordinatorError::Lost`].
    async fn campaign_until(
        &self,
        campaign: &Campaign,
        withdrawn: Withdrawal<'_>,
    ) -> Result<Option<Box<dyn Leadership>>, CoordinatorError>;

    /// The leader of a name, if there is one.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    async fn leader(&self, name: &str) -> Result<Option<Leader>, CoordinatorError>;

    /// Waits until the leader's fence is another one than `seen` (or there is no leader any more, or there is
    /// one if none was seen), for up to `wait`. Returns the leader of that moment.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    async fn watch(
        &self,
        name: &str,
        seen: Option<u64>,
        wait: Duration,
    ) -> Result<Option<Leader>, CoordinatorError>;
}

/// A candidate leads. Call [`renew`](Self::renew) every [`Campaign::renew_every`].
///
/// Dropping this sends nothing: the leadership then ends by the lease, as after a kill.
#[async_trait]
pub trait Leadership: Send + Sync {
    /// Higher than that of each earlier leader of this name under this coordinator, also after resignations,
    /// after the deletion of its keys and after restarts of its servers. Restoring a coordinator from a backup
    /// breaks this promise.
    fn fence(&self) -> u64;

    /// Until then the leader may act, on the monotonic clock of this process: nobody else leads before. It is
    /// counted from before the last successful renewal was sent, and is in the past once the end is known.
    ///
    /// A machine that is suspended stops this clock. Then only the fence protects.
    fn acts_until(&self) -> Instant;

    /// Prolongs the leadership. A failure does not end it before [`acts_until`](Self::acts_until).
    ///
    /// # Errors
    /// [`CoordinatorError::Lost`] when it has ended, else call it again.
    async fn renew(&self) -> Result<(), CoordinatorError>;

    /// Waits for the end of the leadership: the coordinator says so, or its time is over without a renewal.
    /// Runs beside [`renew`](Self::renew).
    async fn ended(&self);

    /// Gives up leadership, so that the next candidate leads at once. From the call on the leader must not act.
    ///
    /// # Errors
    /// When this is uncertain: then it ends by the lease.
    async fn resign(&self) -> Result<(), CoordinatorError>;
}
