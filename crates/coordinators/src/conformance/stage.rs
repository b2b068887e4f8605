//! Shared by the cases: their own name, and helpers for it.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use super::say;
use crate::{Campaign, Coordinator, CoordinatorError, Leadership, connect};

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
        let campaign = self.campaign(id);
        let until = Instant::now() + PATIENCE;
        loop {
            match in_time("a candidate is elected", coordinator.campaign(&campaign)).await {
                Ok(leadership) => return leadership,
                Err(error) => assert!(error.is_passing() && Instant::now() < until, "{id}: {error}"),
            }
        }
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

/// Waits for something that must come.
pub(super) async fn in_time<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what} within {PATIENCE:?}"))
}

/// Waits until a call succeeds. Meanwhile it may only fail because the coordinator is unavailable.
pub(super) async fn until_ok<T, F: Future<Output = Result<T, CoordinatorError>>>(call: impl Fn() -> F) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(result) => return result,
            Err(error) => assert!(error.is_passing() && Instant::now() < until, "{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}
