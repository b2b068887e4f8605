//! The lease of a worker as the worker sees it, by the rules of the client library.

use windlass_core::Millis;

use crate::config::WorkerConfig;

/// The longest wait of a poll, in milliseconds.
const POLL_MS: u64 = 5_000;

/// How much later than asked the answer of a poll may come, in milliseconds, before the worker gives the poll up.
const PATIENCE_MS: u64 = 2_000;

/// The lease that a worker goes by before a server has granted one, in milliseconds.
const FIRST_MS: u64 = 10_000;

/// What a worker knows of its lease.
#[derive(Default)]
pub(super) struct Lease {
    /// When the newest call that was answered was sent. The lease counts from then: a server counts it from when it heard
    /// the call, which is later.
    renewed_at: u64,
    ms: u64,
}

impl Lease {
    pub(super) fn new(now: u64) -> Self {
        Self { renewed_at: now, ms: FIRST_MS }
    }

    /// A call that was sent then was answered.
    pub(super) fn renew(&mut self, sent_at: u64, granted: Millis) {
        self.renewed_at = self.renewed_at.max(sent_at);
        if granted.0 > 0 {
            self.ms = granted.0;
        }
    }

    /// Whether the worker must end what it runs: servers may give it to others soon.
    pub(super) fn lapses(&self, now: u64) -> bool {
        (now - self.renewed_at) * 3 >= self.ms * 2
    }

    /// How long a poll is asked to wait at most: a quarter of the lease for an attached worker, so that its answer comes
    /// before the lease lapses. Scripts ask for any wait.
    pub(super) fn poll_wait(&self, config: &WorkerConfig) -> u64 {
        if config.attached { POLL_MS.min(self.ms / 4) } else { POLL_MS }
    }

    /// How long the answer of a poll is waited for.
    pub(super) fn poll_timeout(&self, config: &WorkerConfig) -> u64 {
        let patience = if config.attached { PATIENCE_MS.min(self.ms / 4) } else { PATIENCE_MS };
        self.poll_wait(config) + patience
    }
}
