//! The servers on shared rows.

use std::sync::Weak;

use async_trait::async_trait;
use windlass_core::{Millis, Timestamp};

use super::SharedStore;
use crate::port::{Cluster, Members, Now, ServerId, ServerState, Service, ServiceLease, StoreError};

#[async_trait]
impl Members for SharedStore {
    async fn register(&self, server: ServerState) -> Result<(), StoreError> {
        self.rows().servers.register(server);
        Ok(())
    }

    async fn servers(&self) -> Result<Vec<ServerState>, StoreError> {
        Ok(self.rows().servers.list())
    }

    async fn leave(&self, server: ServerId) -> Result<(), StoreError> {
        let mut rows = self.rows();
        rows.servers.leave(server);
        rows.news.iter().filter_map(Weak::upgrade).for_each(|news| news.released.set());
        Ok(())
    }

    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError> {
        Ok(self.rows().servers.lease(service, server, length, now))
    }
}

#[async_trait]
impl Cluster for SharedStore {
    async fn news(&self) {
        self.news.changed.wait().await;
    }

    async fn released(&self, services: &[Service]) {
        loop {
            self.news.released.wait().await;
            if self.rows().servers.has_released(services) {
                return;
            }
        }
    }

    async fn time(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    fn connected(&self) -> u64 {
        0
    }

    fn round_trips(&self) -> Option<u64> {
        None
    }
}
