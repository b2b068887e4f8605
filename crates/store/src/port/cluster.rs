//! Servers on a store: which there are, which one leads a service, and what a store has that they share.

use async_trait::async_trait;
use windlass_core::{Millis, Timestamp};

use super::{Now, ServerId, ServerState, Service, ServiceLease, StoreError};

/// Knows the servers on a store, and the leases of services.
#[async_trait]
pub trait Members: Send + Sync + 'static {
    /// A server was heard of. Others that were silent for [`SERVER_FORGOTTEN_AFTER`](super::SERVER_FORGOTTEN_AFTER) may be
    /// forgotten.
    async fn register(&self, server: ServerState) -> Result<(), StoreError>;

    /// The servers on this store, by the time of their start.
    async fn servers(&self) -> Result<Vec<ServerState>, StoreError>;

    /// A server ends: it is forgotten at once, and others may lead its services.
    async fn leave(&self, server: ServerId) -> Result<(), StoreError>;

    /// Gives a server the lease of a service for `length` from now, where it has it already or no other server has it.
    /// Returns who has the lease, and until when.
    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError>;
}

/// What a store has that several servers share.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Returns when another server may have made something ready, due or to be stopped since the last call. It may
    /// return for nothing, and may miss changes: the engine looks by itself from time to time, and sooner where this
    /// returns. A store that cannot know waits for ever.
    async fn news(&self);

    /// Returns when a server that has ended may have released the lease of one of these services since the last call. It may
    /// return for nothing, and may miss releases: a server requests leases with each heartbeat, and sooner where this returns.
    /// A store that cannot know waits for ever.
    async fn released(&self, services: &[Service]) {
        let _ = services;
        std::future::pending().await
    }

    /// The store's clock, by which all servers go; nothing where they have one clock anyway.
    async fn time(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Grows with each new connection. Another server of the database may have taken its place, which may lack changes that
    /// were confirmed before.
    fn connected(&self) -> u64;

    /// How often something was sent to a server of the store and waited for; nothing where there is no such server.
    fn round_trips(&self) -> Option<u64>;
}
