//! The services that this server runs for all servers on its store, as long as it has their leases.
//!
//! A server that was paused for longer than a lease still believes that it leads. So what a service writes carries the
//! lease, and the store refuses it once another server has taken that lease. See
//! `docs/decisions/0028-what-leaders-write-is-fenced.md`.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use windlass_core::Millis;
use windlass_store::{Change, Leadership, Leave, Now, Outcome, ServerId, Service, ServiceLease, StoreError};

use crate::{Engine, EngineError, RoundsOf};

/// The service leases of this server.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// This server's id, once it has joined.
    pub(crate) me: OnceLock<ServerId>,
    leases: Mutex<BTreeMap<Service, ServiceLease>>,
    /// Whether this server has queues that only the leader of the intake reads.
    pub(crate) wants_intake: AtomicBool,
    /// Whether this server can reach the network of devices.
    pub(crate) wants_devices: AtomicBool,
}

/// A service that this server leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Led {
    /// The lease that goes with what the service writes; `None` on a store without other servers.
    pub(crate) lease: Option<Leadership>,
}

impl Leading {
    /// Records the lease of a service; `None` = another server has it.
    pub(crate) fn note(&self, service: Service, lease: Option<ServiceLease>) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        match lease {
            Some(lease) => drop(leases.insert(service, lease)),
            None => drop(leases.remove(&service)),
        }
    }

    /// Forgets a lease that the store has refused, unless this server has a newer one.
    fn forget(&self, lost: Leadership) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.get(&lost.service).is_some_and(|lease| lease.leadership(lost.service) == lost) {
            leases.remove(&lost.service);
        }
    }

    pub(crate) fn lease(&self, service: Service) -> Option<ServiceLease> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).get(&service).copied()
    }
}

impl Engine {
    /// The id of this server among the servers on its store, once it has joined.
    pub fn server_id(&self) -> Option<ServerId> {
        self.leading.me.get().copied()
    }

    /// This server has queues that only one server at a time may read: from now on it requests the lease for that with each
    /// heartbeat. All servers on the store that call this must have the same such queues.
    pub fn request_intake(&self) {
        self.leading.wants_intake.store(true, Ordering::Relaxed);
    }

    /// Until when this server is the one that reads those queues, by the time that leases go by; `None` = it is not.
    pub fn leads_intake_until(&self, now: Now) -> Option<Millis> {
        self.leading.lease(Service::Intake).map(|lease| lease.until).filter(|until| now.mono < *until)
    }

    /// Whether this server leads the service now. The only server of a store leads all services.
    #[must_use]
    pub fn leads_service(&self, service: Service, now: Now) -> bool {
        self.leads(service, now).is_some()
    }

    /// The leadership of the service, if this server leads it now. The only server of a store runs all services.
    pub(crate) fn leads(&self, service: Service, now: Now) -> Option<Led> {
        if self.store.cluster().is_none() {
            return Some(Led { lease: None });
        }
        let lease = self.leading.lease(service).filter(|lease| now.mono < lease.until)?;
        Some(Led { lease: Some(lease.leadership(service)) })
    }

    /// Commits; `led`: some of the changes are of a service that this server leads.
    pub(crate) async fn commit_as(
        &self,
        led: Option<Leadership>,
        changes: Vec<Change>,
        now: Now,
    ) -> Result<Vec<Outcome>, StoreError> {
        Ok(self.store.commit_and_claim(changes, &[], &Leave::default(), led, now).await?.0)
    }

    /// Makes a round of a service if this server leads it, and records how it went.
    pub(crate) async fn round_of<T: Default, R: Future<Output = Result<T, EngineError>>>(
        &self,
        of: RoundsOf,
        service: Service,
        now: Now,
        round: impl FnOnce(Led) -> R,
    ) -> Result<T, EngineError> {
        let result = match self.leads(service, now) {
            Some(led) => self.unless_lost(led, round(led).await),
            None => Ok(T::default()),
        };
        self.rounds.note(of, result)
    }

    /// The result of a round of a led service. If the store has refused a write because another server has the lease, the
    /// round ends without an error: this server stands by, and the next heartbeat requests the lease again.
    pub(crate) fn unless_lost<T: Default>(
        &self,
        led: Led,
        round: Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match (round, led.lease) {
            (Err(EngineError::Store(StoreError::LeaseLost)), Some(lost)) => {
                tracing::info!(
                    service = lost.service.name(),
                    fence = lost.fence,
                    "another server has taken this service over; standing by"
                );
                self.leading.forget(lost);
                Ok(T::default())
            }
            (round, _) => round,
        }
    }
}
