//! Shared by the cases: their own name, and helpers for it.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use super::say;
use crate::{Campaign, Coordinator, CoordinatorError, Leader, Leadership, connect};

/// The time limit where no other applies.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The name that one case campaigns for.
pub(super) struct Stage<'s> {
    pub(super) url: &'s str,
    pub(super) coordinator: Arc<dyn Coordinator>,
    pub(super) name: String,
    pub(super) lease: Duration,
    case: &'s str,
}

impl<'s> Stage<'s> {
    pub(super) fn new(url: &'s str, lease: Duration, case: &'s str) -> Self {
        let topic = case.rsplit("::").next().unwrap_or_default().replace('_', "-");
        let name = format!("conformance/{topic}-{:08x}", fastrand::u32(..));
        Self { url, coordinator: connect(url).expect("the URL is valid"), name, lease, case }
    }

    /// This stage with another lease.
    pub(super) fn with_lease(&self, lease: Duration) -> Self {
        let (coordinator, name) = (Arc::clone(&self.coordinator), self.name.clone());
        Self { url: self.url, coordinator, name, lease, case: self.case }
    }

    /// A campaign of a candidate with this id.
    pub(super) fn campaign(&self, id: &str) -> Campaign {
        Campaign::new(&self.name, id, self.lease)
    }

    /// Waits until a candidate with this id leads.
    pub(super) async fn elect(&self, id: &str) -> Box<dyn Leadership> {
        self.elect_by(&*self.coordinator, id).await
    }

    /// The same by another connection.
    pub(super) async fn elect_by(&self, coordinator: &dyn Coordinator, id: &str) -> Box<dyn Leadership> {
        elect(coordinator, &self.campaign(id)).await
    }

    /// Who leads now.
    pub(super) async fn leader(&self) -> Option<Leader> {
        until_ok(|| self.coordinator.leader(&self.name)).await
    }

    /// Renews as often as a leader does, until the other future is ready, which gets its result.
    pub(super) async fn renewing<T>(
        &self,
        leadership: &dyn Leadership,
        beside: impl Future<Output = T>,
    ) -> T {
        let renewing = async {
            loop {
                sleep(self.lease / 6).await;
                if let Err(error) = leadership.renew().await {
                    assert!(error.is_passing(), "the leadership goes on: {error}");
                }
            }
        };
        tokio::select! {
            result = beside => result,
            () = renewing => unreachable!("this never ends"),
        }
    }

    /// Prints how long something took.
    pub(super) fn took(&self, what: &str, since: Instant) {
        let took = since.elapsed().as_secs_f64();
        self.say(&format!("{}: {what} after {took:.2} s, with a lease of {:?}", self.case, self.lease));
    }

    /// Prints a line, with the product before it.
    pub(super) fn say(&self, line: &str) {
        say(self.url, line);
    }
}

/// Waits until this candidate leads.
pub async fn elect(coordinator: &dyn Coordinator, campaign: &Campaign) -> Box<dyn Leadership> {
    in_time("a candidate is elected", until_ok(|| coordinator.campaign(campaign))).await
}

/// Renews a leadership that has not ended.
pub async fn renew(leadership: &dyn Leadership) {
    until_ok(|| leadership.renew()).await;
}

/// Gives up leadership.
pub async fn resign(leadership: &dyn Leadership) {
    until_ok(|| leadership.resign()).await;
}

/// Repeats a scenario until a round returns true. A busy machine may spoil a round.
pub(super) async fn in_some_round(what: &str, round: impl AsyncFn() -> bool) {
    const ROUNDS: usize = 4;
    for _ in 0..ROUNDS {
        if round().await {
            return;
        }
    }
    panic!("{what}: in none of {ROUNDS} rounds");
}

/// Waits for something that must come.
pub(super) async fn in_time<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what} within {PATIENCE:?}"))
}

/// Waits until a call succeeds. Meanwhile it may only fail because the coordinator is unavailable.
pub(super) async fn until_ok<T, F: Future<Output = Result<T, CoordinatorError>>>(call: impl Fn() -> F) -> T {
    until_answered(call).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Repeats a call while the coordinator is unavailable, for at most a minute. A busy coordinator may close the connection.
///
/// # Errors
/// Any error other than an unavailable coordinator, at once. After a minute also that one.
pub async fn until_answered<T, F: Future<Output = Result<T, CoordinatorError>>>(
    call: impl Fn() -> F,
) -> Result<T, CoordinatorError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Err(error) if error.is_passing() && Instant::now() < until => {
                sleep(Duration::from_millis(50)).await;
            }
            result => return result,
        }
    }
}
