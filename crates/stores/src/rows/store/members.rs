//! The servers on a shared database.

use std::future::pending;

use async_trait::async_trait;
use windlass_core::{Millis, Timestamp};
use windlass_store::{Cluster, Members, Now, ServerId, ServerState, Service, ServiceLease, StoreError};

use super::{Dialect, News as _, RowStore, send};
use crate::rows::{Database as _, policy::retrying, servers};

#[async_trait]
impl<D: Dialect> Members for RowStore<D> {
    async fn register(&self, server: ServerState) -> Result<(), StoreError> {
        with_link!(self, |inner, link| servers::register(&mut link, &server))
    }

    async fn servers(&self) -> Result<Vec<ServerState>, StoreError> {
        with_link!(self, |inner, link| servers::servers(&mut link))
    }

    async fn leave(&self, server: ServerId) -> Result<(), StoreError> {
        with_link!(self, |inner, link| send(&mut link, D::leave(server)))
    }

    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError> {
        with_link!(self, |inner, link| servers::lease(&mut link, service, server, length, now))
    }
}

#[async_trait]
impl<D: Dialect> Cluster for RowStore<D> {
    fn connected(&self) -> u64 {
        self.inner.database.connected()
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.inner.database.trips())
    }

    async fn news(&self) {
        self.news.next().await;
    }

    async fn released(&self, services: &[Service]) {
        if services.is_empty() {
            return pending().await;
        }
        loop {
            self.news.released().await;
            let released = with_link!(self, |inner, link| servers::released(&mut link));
            // The next heartbeat reports a store that fails.
            if released.is_ok_and(|released| services.iter().any(|service| released.contains(service))) {
                return;
            }
        }
    }

    async fn time(&self) -> Result<Option<Timestamp>, StoreError> {
        with_link!(self, |inner, link| servers::time(&mut link))
    }
}
