//! How a store that several servers share learns of what others did.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

/// Between two tries to listen again.
pub(crate) const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Other servers are notified at most once in this time: a server that hears of something looks twice.
const NOTIFY_EVERY: Duration = Duration::from_millis(10);

/// Learns of what other servers and applications did.
pub(crate) trait News: Send + Sync + 'static {
    /// Returns when other servers may have done something since the last call.
    fn next(&self) -> impl Future<Output = ()> + Send;

    /// Returns when an application may have enqueued something since the last call.
    fn enqueued(&self) -> impl Future<Output = ()> + Send;

    /// Returns when a server may have ended since the last call.
    fn released(&self) -> impl Future<Output = ()> + Send;
}

/// A task that listens until this is dropped.
pub(crate) struct Listener(JoinHandle<()>);

impl Listener {
    /// Begins to listen, on the runtime that this is called on.
    pub(crate) fn spawn(listen: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(listen))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// When this server notified the others last.
#[derive(Debug, Default)]
pub(crate) struct LastNotified(Mutex<Option<Instant>>);

impl LastNotified {
    /// Whether the others may be notified again.
    pub(crate) fn is_past(&self) -> bool {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_none_or(|at| at.elapsed() >= NOTIFY_EVERY)
    }

    /// Records that the others are notified now.
    pub(crate) fn set(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}
