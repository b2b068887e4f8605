//! The lease as a worker sees it, by the rules of the client library.

use windlass_core::Millis;

use crate::config::WorkerConfig;

/// The longest wait of a poll, in milliseconds.
const POLL_MS: u64 = 5_000;

/// How much later than requested the answer of a poll may arrive, in milliseconds, before the worker abandons
/// the poll.
const PATIENCE_MS: u64 = 2_000;

/// The assumed lease before a server has granted one, in milliseconds.
const FIRST_MS: u64 = 10_000;

/// The state of a lease as the worker sees it.
#[derive(Default)]
pub(super) struct Lease {
    /// When the newest answered call was sent. The lease counts from then; a server counts it from when it
    /// received the call, which is later.
    renewed_at: u64,
    ms: u64,
}

impl Lease {
    pub(super) fn new(now: u64) -> Self {
        Self { renewed_at: now, ms: FIRST_MS }
    }

    /// A call sent at `sent_at` was answered.
    pub(super) fn renew(&mut self, sent_at: u64, granted: Millis) {
        self.renewed_at = self.renewed_at.max(sent_at);
        if granted.0 > 0 {
            self.ms = granted.0;
        }
    }

    /// Whether the worker must stop its runs, because other workers may soon claim their attempts.
    pub(super) fn lapses(&self, now: u64) -> bool {
        (now - self.renewed_at) * 3 >= self.ms * 2
    }

    /// The longest wait of a poll: a quarter of the lease for an attached worker, so that the answer arrives
    /// before the lease lapses. Scripts may ask for any wait.
    pub(super) fn poll_wait(&self, config: &WorkerConfig) -> u64 {
        if config.attached { POLL_MS.min(self.ms / 4) } else { POLL_MS }
    }

    /// How long to wait for the answer of a poll.
    pub(super) fn poll_timeout(&self, config: &WorkerConfig) -> u64 {
        let patience = if config.attached { PATIENCE_MS.min(self.ms / 4) } else { PATIENCE_MS };
        self.poll_wait(config) + patience
    }
}
