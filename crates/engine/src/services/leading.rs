//! What this server does for all servers on its store, as far as it has the lease of it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock, PoisonError},
};

use windlass_core::Millis;
use windlass_store::{Now, ServerId, Service};

use crate::Engine;

/// The leases of services that this server has.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// This server, once it is a member.
    pub(crate) me: OnceLock<ServerId>,
    until: Mutex<BTreeMap<Service, Millis>>,
}

impl Leading {
    /// This server has the lease of a service until then; nothing = another one has it.
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
    /// Which of the servers on its store this is, once it is one of them.
    pub fn server_id(&self) -> Option<ServerId> {
        self.leading.me.get().copied()
    }

    /// Whether this server is the one that does this. The only server of a store does everything.
    pub(crate) fn leads(&self, service: Service, now: Now) -> bool {
        self.store.cluster().is_none() || self.leading.until(service).is_some_and(|until| now.mono < until)
    }
}
