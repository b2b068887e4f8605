//! Membership of a server among the servers on a store: heartbeats, and the leases of services that one server runs for
//! all.

use std::{
    future::pending,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use windlass_core::{AlarmCommand, AlarmId, AlarmKind, Millis, TaskId, Timestamp};
use windlass_store::{Now, SERVER_FORGOTTEN_AFTER, ServerId, ServerState, Service};

use crate::{Engine, EngineError, deciding::inbox::Item};

/// How often a server sends a heartbeat.
pub const HEARTBEAT_EVERY: Millis = Millis::from_secs(1);

/// The duration of a service lease. After the death of a server, others take over its services at most this much later.
pub const SERVICE_LEASE: Millis = Millis::from_secs(3);

/// Makes this server a member of the servers on its store.
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
        // An engine keeps its server id for its whole life.
        let _ = engine.leading.me.set(me.id);
        Self { engine, me, confirmed: Mutex::default() }
    }

    /// The id of this server.
    #[must_use]
    pub fn id(&self) -> ServerId {
        self.me.id
    }

    /// Sends a heartbeat, and requests the leases of services.
    ///
    /// If this is the first server on a store after a time without any server, it gives all sessions a full new lease:
    /// they could not renew.
    ///
    /// The store must have this server's last heartbeat. If it has not, it lost changes that it had confirmed since
    /// then, for example because a database failed over to a replica that was behind: that raises an alarm. A loss
    /// between two heartbeats is not detected.
    ///
    /// # Errors
    /// When the store fails; the leases of this server then expire.
    pub async fn run_once(&self, now: Now) -> Result<(), EngineError> {
        let beat = self.beat(now).await;
        if beat.is_err() {
            // Other servers may not have reached the store either, and so not renewed their workers.
            self.engine.stored_leases.fail(now);
        }
        beat
    }

    async fn beat(&self, now: Now) -> Result<(), EngineError> {
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
        for service in Service::ALL.into_iter().filter(|service| self.provides(*service)) {
            let lease = store.lease(service, self.me.id, SERVICE_LEASE, now).await?;
            self.engine.leading.note(service, (lease.holder == self.me.id).then_some(lease));
        }
        Ok(())
    }

    /// Waits until a server that has ended may have released the lease of a service that this server provides.
    pub async fn released(&self) {
        let Some(cluster) = self.engine.store.cluster() else { return pending().await };
        let wanted =
            |service: &Service| self.provides(*service) && self.engine.leading.lease(*service).is_none();
        let wanted: Vec<Service> = Service::ALL.into_iter().filter(wanted).collect();
        cluster.released(&wanted).await;
    }

    /// Whether this server is configured for a service. A server that is not must not take the lease away from servers that
    /// are.
    fn provides(&self, service: Service) -> bool {
        match service {
            Service::Announcing => self.engine.announcing.is_on(),
            Service::Intake => self.engine.leading.wants_intake.load(Ordering::Relaxed),
            Service::Devices => self.engine.leading.wants_devices.load(Ordering::Relaxed),
            Service::Timekeeping | Service::Sweeping | Service::Enqueuing => true,
        }
    }

    /// Since when confirmed changes are lost, if the store has lost any.
    fn lost_since(&self, servers: &[ServerState], confirmed: Now, now: Now) -> Option<Timestamp> {
        match servers.iter().find(|server| server.id == self.me.id) {
            Some(found) => (found.heard_at < confirmed.wall).then_some(found.heard_at),
            // Other servers delete a server after a long silence.
            None if now.mono.0 >= confirmed.mono.0 + SERVER_FORGOTTEN_AFTER.0 => None,
            None => Some(self.me.started_at),
        }
    }

    fn raise_went_back(&self, since: Timestamp, now: Now) {
        let lost = now.wall - since;
        let message = format!(
            "the store lost changes that it had confirmed: some or all of those of the last {lost} before this alarm are \
             missing, as after a failover to a replica that was behind. Tasks that were accepted in that time may be \
             gone, and steps that were done may run again: submit missing tasks again under their idempotency keys"
        );
        let (kind, id) = (AlarmKind::StoreWentBack, AlarmId(AlarmKind::StoreWentBack.as_str().into()));
        let command = AlarmCommand::Raise { kind, task: TaskId::NONE, step: None, message: message.into() };
        self.engine.inbox.post(vec![Item::Alarm { id, command }]);
    }

    /// The common time of all servers on a shared store: the store's clock, but not before the latest time that any of
    /// them used. So no stored time is in the future when the store's clock is set back.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn time(&self) -> Result<Option<Timestamp>, EngineError> {
        let Some(cluster) = self.engine.store.cluster() else { return Ok(None) };
        let Some(time) = cluster.time().await? else { return Ok(None) };
        let heard = self.engine.store.servers().await?.into_iter().map(|server| server.heard_at);
        Ok(heard.chain([time]).max())
    }

    /// Gives all sessions a full new lease: time has jumped, so their silence means nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn forgive(&self, now: Now) -> Result<(), EngineError> {
        Ok(self.engine.store.forgive(now).await?)
    }

    /// Leaves the servers on the store: other servers can take over its services at once.
    ///
    /// # Errors
    /// When the store fails; others take over when the leases of this server have expired.
    pub async fn end(&self) -> Result<(), EngineError> {
        Service::ALL.iter().for_each(|service| self.engine.leading.note(*service, None));
        Ok(self.engine.store.leave(self.me.id).await?)
    }
}
