//! Servers on one store: which there are, and which of them does what only one is to do.

use std::fmt;

use windlass_core::{
    Millis, Timestamp,
    planted::{Bug, is_planted},
};

/// A server: the UUID it made when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u128);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_u128(self.0).hyphenated().fmt(f)
    }
}

/// A server as it reports itself, and when it was last heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Which.
    pub id: ServerId,
    /// Version of the program.
    pub version: Box<str>,
    /// Where others reach it.
    pub address: Box<str>,
    /// The highest level of features that it knows: what is above the lowest level of all servers is not used yet.
    pub level: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// When it was last heard of.
    pub heard_at: Timestamp,
    /// The same, by the time that leases go by.
    pub heard: Millis,
}

impl ServerState {
    /// Whether it was heard of lately.
    #[must_use]
    pub fn is_up(&self, now: Millis) -> bool {
        now.0 < self.heard.0.saturating_add(SERVER_SILENT_AFTER.0)
    }
}

/// A server that was not heard of for so long is taken for gone.
pub const SERVER_SILENT_AFTER: Millis = Millis::from_secs(5);

/// A server that was not heard of for this long is not listed any longer.
pub const SERVER_FORGOTTEN_AFTER: Millis = Millis::from_secs(300);

/// What only one server at a time is to do. The others would do it as well as that one, but all of them at once would
/// be in one another's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// What is due and what was lost, and messages that their senders left.
    Timekeeping,
    /// Deleting what was kept long enough.
    Sweeping,
    /// Taking in what applications enqueued.
    Enqueuing,
    /// Announcing what happened.
    Announcing,
    /// Accepting the messages of queues that only one server at a time may read.
    Intake,
    /// Giving devices their jobs.
    Devices,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Timekeeping, Self::Sweeping, Self::Enqueuing, Self::Announcing, Self::Intake, Self::Devices];

    /// Its name, as stores keep it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timekeeping => "timekeeping",
            Self::Sweeping => "sweeping",
            Self::Enqueuing => "enqueuing",
            Self::Announcing => "announcing",
            Self::Intake => "intake",
            Self::Devices => "devices",
        }
    }
}

/// Which server does what only one is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceLease {
    /// The server.
    pub holder: ServerId,
    /// Grows with every new holder: what was done under a lower one is by a server that has lost the lease.
    pub fence: u64,
    /// Until when, by the time that leases go by.
    pub until: Millis,
}

impl ServiceLease {
    /// The leadership that the holder of this lease of `service` has.
    #[must_use]
    pub fn leadership(&self, service: Service) -> Leadership {
        Leadership { service, holder: self.holder, fence: self.fence }
    }
}

/// The lease of a service as its holder knows it. It goes with each write that a server makes because it leads the
/// service, and the store checks it in the transaction of that write: a server that was paused for longer than its lease
/// still believes that it leads, and must not write beside its successor.
///
/// A store with a single owner ignores it: no other server can have taken the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The service.
    pub service: Service,
    /// The server that leads it.
    pub holder: ServerId,
    /// The fence of its lease.
    pub fence: u64,
}

impl Leadership {
    /// Whether `lease` is still this one. Its time does not matter: until another server takes the lease, nobody else does
    /// the work.
    #[must_use]
    pub fn stands(&self, lease: Option<&ServiceLease>) -> bool {
        is_planted(Bug::ServiceFenceUnchecked)
            || lease.is_some_and(|lease| (lease.holder, lease.fence) == (self.holder, self.fence))
    }
}
