//! The services that this server runs for all servers on its store, as long as it has their leases.

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock, PoisonError},
};

use windlass_core::Millis;
use windlass_store::{Now, ServerId, Service};

use crate::Engine;

/// The service leases of this server.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// This server's id, once it has joined.
    pub(crate) me: OnceLock<ServerId>,
    until: Mutex<BTreeMap<Service, Millis>>,
}

impl Leading {
    /// Records until when this server has the lease of a service; `None` = another server has it.
    pub(crate) fn note(&self, service: Service, until: Option<Millis>) {
        let mut leases = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        match until {
            Some(until) => drop(leases.insert(service, until)),
            None => drop(leases.remove(&service)),
        }
    }

    fn until(&self, service: Service) -> Option<Millis> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).get(&service).copied()
    }
}

impl Engine {
    /// The id of this server among the servers on its store, once it has joined.
    pub fn server_id(&self) -> Option<ServerId> {
        self.leading.me.get().copied()
    }

    /// Whether this server runs the service now. The only server of a store runs all services.
    pub(crate) fn leads(&self, service: Service, now: Now) -> bool {
        !self.store.is_shared() || self.leading.until(service).is_some_and(|until| now.mono < until)
    }
}
