//! The rows of servers, and of what only one of them does.

use std::collections::BTreeMap;

use windlass_core::{
    Millis,
    planted::{Bug, is_planted},
};

use crate::port::{
    Leadership, Now, SERVER_FORGOTTEN_AFTER, ServerId, ServerState, Service, ServiceLease, StoreError,
};

/// One row per server and one per service.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    rows: BTreeMap<ServerId, ServerState>,
    leases: BTreeMap<Service, ServiceLease>,
    /// No fence was higher before.
    fence_before: u64,
}

impl Servers {
    /// No rows yet. Fences are above `fence`.
    pub(crate) fn after_fence(fence: u64) -> Self {
        Self { fence_before: fence, ..Self::default() }
    }

    pub(crate) fn register(&mut self, server: ServerState) {
        let now = server.heard;
        self.rows.insert(server.id, server);
        self.rows.retain(|_, row| now.0 < row.heard.0.saturating_add(SERVER_FORGOTTEN_AFTER.0));
    }

    pub(crate) fn list(&self) -> Vec<ServerState> {
        let mut servers: Vec<ServerState> = self.rows.values().cloned().collect();
        servers.sort_by_key(|server| (server.started_at, server.id));
        servers
    }

    pub(crate) fn leave(&mut self, server: ServerId) {
        self.rows.remove(&server);
        // The fence stays, for the next holder's to be above it.
        for lease in self.leases.values_mut().filter(|lease| lease.holder == server) {
            lease.until = Millis(0);
        }
    }

    /// Whether a server that has ended had the lease of one of these services, and no other one has taken it.
    pub(crate) fn has_released(&self, services: &[Service]) -> bool {
        services.iter().any(|service| self.leases.get(service).is_some_and(|lease| lease.until == Millis(0)))
    }

    pub(crate) fn lease(
        &mut self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> ServiceLease {
        let until = Millis(now.mono.0.saturating_add(length.0));
        let lease = self.leases.entry(service).or_insert(ServiceLease {
            holder: server,
            fence: self.fence_before + 1,
            until,
        });
        if lease.holder == server {
            lease.until = until;
        } else if lease.until <= now.mono || is_planted(Bug::LeaseTakenEarly) {
            let fence = lease.fence + u64::from(!is_planted(Bug::ServiceFenceReused));
            *lease = ServiceLease { holder: server, fence, until };
        }
        *lease
    }

    /// Fails where another server has taken the lease.
    pub(crate) fn check(&self, led: Option<Leadership>) -> Result<(), StoreError> {
        match led {
            Some(led) if !led.stands(self.leases.get(&led.service)) => Err(StoreError::LeaseLost),
            _ => Ok(()),
        }
    }
}
