//! Being one of several servers on a store: being heard of, and having the leases of what only one of them does.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::{AlarmCommand, AlarmId, AlarmKind, Millis, TaskId, Timestamp};
use windlass_store::{Now, SERVER_FORGOTTEN_AFTER, ServerId, ServerState, Service};

use crate::{Engine, EngineError, deciding::inbox::Item};

/// How often a server is to say that it is there.
pub const HEARTBEAT_EVERY: Millis = Millis::from_secs(1);

/// For how long a server has the lease of a service. So much later at most others go on with what a server did for
/// all that is gone.
pub const SERVICE_LEASE: Millis = Millis::from_secs(3);

/// Makes this server one of those on its store.
pub struct Membership {
    engine: Arc<Engine>,
    me: ServerState,
    /// The time of the last heartbeat that the store confirmed.
    confirmed: Mutex<Option<Now>>,
}

impl Membership {
    /// A membership of `engine` as `me`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, me: ServerState) -> Self {
        // An engine is one server for as long as it lives.
        let _ = engine.leading.me.set(me.id);
        Self { engine, me, confirmed: Mutex::default() }
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
    /// The store must have this server's last heartbeat. Where it has not, it lost what it had confirmed since then, as a
    /// database does that fails over to a replica which was behind: that raises an alarm. A loss between two heartbeats
    /// is not noticed.
    ///
    /// # Errors
    /// When the store fails; leases that this server has end in time.
    pub async fn run_once(&self, now: Now) -> Result<(), EngineError> {
        let store = &self.engine.store;
        let servers = store.servers().await?;
        let confirmed = *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        match confirmed {
            None => {
                let is_other_up = |server: &ServerState| server.id != self.me.id && server.is_up(now.mono);
                if !servers.iter().any(is_other_up) {
                    store.forgive(now).await?;
                }
            }
            Some(confirmed) => {
                if let Some(since) = self.lost_since(&servers, confirmed, now) {
                    self.raise_went_back(since, now);
                }
            }
        }
        store.register(ServerState { heard_at: now.wall, heard: now.mono, ..self.me.clone() }).await?;
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        // Who announces nothing would keep those from it who do.
        let announces = self.engine.announcing.is_on();
        for service in Service::ALL.into_iter().filter(|service| announces || *service != Service::Announcing)
        {
            let lease = store.lease(service, self.me.id, SERVICE_LEASE, now).await?;
            self.engine.leading.note(service, (lease.holder == self.me.id).then_some(lease.until));
        }
        Ok(())
    }

    /// Since when the store has lost what it confirmed, if it has.
    fn lost_since(&self, servers: &[ServerState], confirmed: Now, now: Now) -> Option<Timestamp> {
        match servers.iter().find(|server| server.id == self.me.id) {
            Some(found) => (found.heard_at < confirmed.wall).then_some(found.heard_at),
            // Others forget a server that was silent for long.
            None if now.mono.0 >= confirmed.mono.0 + SERVER_FORGOTTEN_AFTER.0 => None,
            None => Some(self.me.started_at),
        }
    }

    fn raise_went_back(&self, since: Timestamp, now: Now) {
        let lost = now.wall - since;
        let message = format!(
            "the store lost changes that it had confirmed: some or all of those of the last {lost} before this alarm are \
             missing, as after a failover to a replica that was behind. Tasks that were accepted in that time may be \
             gone, and steps that were done may run again: submit what is missing again under its idempotency keys"
        );
        let (kind, id) = (AlarmKind::StoreWentBack, AlarmId(AlarmKind::StoreWentBack.as_str().into()));
        let command = AlarmCommand::Raise { kind, task: TaskId::NONE, step: None, message: message.into() };
        self.engine.inbox.post(vec![Item::Alarm { id, command }]);
    }

    /// What time it is for all servers on the store, where they share it: by the store's clock, and not behind what any
    /// of them went by. So nothing that was written lies ahead when the store's clock is set back.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn time(&self) -> Result<Option<Timestamp>, EngineError> {
        let Some(cluster) = self.engine.store.cluster() else { return Ok(None) };
        let Some(time) = cluster.time().await? else { return Ok(None) };
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
