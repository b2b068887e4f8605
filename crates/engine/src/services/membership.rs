//! Being one of several servers on a store: being heard of, and having the leases of what only one of them does.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::{Millis, Timestamp};

use crate::{
    Engine, EngineError,
    ports::{Now, ServerId, ServerState, Service},
};

/// How often a server is to say that it is there.
pub const HEARTBEAT_EVERY: Millis = Millis::from_secs(1);

/// For how long a server has the lease of a service. So much later at most others go on with what a server did for
/// all that is gone.
pub const SERVICE_LEASE: Millis = Millis::from_secs(3);

/// Makes this server one of those on its store.
pub struct Membership {
    engine: Arc<Engine>,
    me: ServerState,
    /// It was heard of by the store.
    has_begun: Mutex<bool>,
}

impl Membership {
    /// A membership of `engine` as `me`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, me: ServerState) -> Self {
        // An engine is one server for as long as it lives.
        let _ = engine.leading.me.set(me.id);
        Self { engine, me, has_begun: Mutex::default() }
    }

    /// Which server it is.
    #[must_use]
    pub fn id(&self) -> ServerId {
        self.me.id
    }

    /// Says that this server is there, and asks for the leases of services.
    ///
    /// The first server on a store after a time in which there was none gives all sessions a full new lease: nobody
    /// could hear of them.
    ///
    /// # Errors
    /// When the store fails; leases that this server has end in time.
    pub async fn run_once(&self, now: Now) -> Result<(), EngineError> {
        let store = &self.engine.store;
        if !*self.has_begun.lock().unwrap_or_else(PoisonError::into_inner) {
            let is_other_up = |server: &ServerState| server.id != self.me.id && server.is_up(now.mono);
            if !store.servers().await?.iter().any(is_other_up) {
                store.forgive(now).await?;
            }
        }
        store.register(ServerState { heard_at: now.wall, heard: now.mono, ..self.me.clone() }).await?;
        *self.has_begun.lock().unwrap_or_else(PoisonError::into_inner) = true;
        // Who announces nothing would keep those from it who do.
        let announces = self.engine.announcing.is_on();
        for service in Service::ALL.into_iter().filter(|service| announces || *service != Service::Announcing)
        {
            let lease = store.lease(service, self.me.id, SERVICE_LEASE, now).await?;
            self.engine.leading.note(service, (lease.holder == self.me.id).then_some(lease.until));
        }
        Ok(())
    }

    /// What time it is for all servers on the store, where they share it: by the store's clock, and not behind what any
    /// of them went by. So nothing that was written lies ahead when the store's clock is set back.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn time(&self) -> Result<Option<Timestamp>, EngineError> {
        let Some(time) = self.engine.store.time().await? else { return Ok(None) };
        let heard = self.engine.store.servers().await?.into_iter().map(|server| server.heard_at);
        Ok(heard.chain([time]).max())
    }

    /// Gives all sessions a full new lease: time has jumped, so silence says nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn forgive(&self, now: Now) -> Result<(), EngineError> {
        Ok(self.engine.store.forgive(now).await?)
    }

    /// This server ends: what it did for all goes to others at once.
    ///
    /// # Errors
    /// When the store fails; others take over when its leases have ended.
    pub async fn end(&self) -> Result<(), EngineError> {
        Service::ALL.iter().for_each(|service| self.engine.leading.note(*service, None));
        Ok(self.engine.store.leave(self.me.id).await?)
    }
}
