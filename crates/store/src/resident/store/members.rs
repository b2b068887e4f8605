//! The servers of a store with a single owner: that owner.

use async_trait::async_trait;
use windlass_core::Millis;

use super::Resident;
use crate::port::{Members, Now, ServerId, ServerState, Service, ServiceLease, StoreError};

#[async_trait]
impl Members for Resident {
    async fn register(&self, server: ServerState) -> Result<(), StoreError> {
        self.servers().register(server);
        Ok(())
    }

    async fn servers(&self) -> Result<Vec<ServerState>, StoreError> {
        Ok(self.servers().list())
    }

    async fn leave(&self, server: ServerId) -> Result<(), StoreError> {
        self.servers().leave(server);
        Ok(())
    }

    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError> {
        Ok(self.servers().lease(service, server, length, now))
    }
}
