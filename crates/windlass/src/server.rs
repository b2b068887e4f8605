//! The server: an engine over a store, the loops of its services, and the HTTP interface.

use std::{future::Future, net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use tokio::{net::TcpListener, sync::oneshot};
use windlass_core::Millis;
use windlass_engine::{
    AccessSecret, Committer, Engine, EngineError, loops,
    services::{DamageReporter, EnqueueImporter, Janitor, Membership, RolloutKeeper, TriggerKeeper},
};
use windlass_store::{Clock, Retention, ServerId, ServerState};
use windlass_tls::ServerTls;

use crate::{
    access,
    brokers::Brokers,
    clock::{SystemClock, built_at},
    clock_watch,
    config::{AccessConfig, ServerConfig},
    devices::Devices,
    http,
    loops::Loops,
    service_manager,
    task_list::TaskLists,
    traces::Traces,
    webhooks::Webhooks,
    wire::{self, StoreUrl},
};

/// The interval at which old rows are deleted.
const SWEEP_EVERY: Millis = Millis::from_secs(60);

/// The number of batches decided concurrently: one while the other waits for the disk.
const COMMITTERS: usize = 2;

/// The feature level of this version. A server can read the formats of levels up to its own. It writes none
/// above the lowest level of all servers on the store.
const FEATURE_LEVEL: u32 = 1;

/// A server that is ready to run.
pub(crate) struct Server {
    listener: TcpListener,
    jobs_listener: Option<TcpListener>,
    engine: Arc<Engine>,
    clock: Arc<SystemClock>,
    membership: Membership,
    retention: Retention,
    clients: http::ClientLimits,
    access: AccessConfig,
    parts: Parts,
}

/// What the settings name, made without connecting to anything or reading the store.
struct Parts {
    tls: Option<Arc<ServerTls>>,
    admin_token: Option<AccessSecret>,
    jobs: Option<http::Jobs>,
    brokers: Brokers,
    task_lists: TaskLists,
    webhooks: Webhooks,
    traces: Traces,
    devices: Devices,
}

impl Parts {
    fn new(config: &ServerConfig) -> anyhow::Result<Self> {
        let tls = config.tls.clone().map(ServerTls::open).transpose().context("cannot use TLS")?;
        let admin_token = config.access.admin_token_file.as_deref().map(access::read_file).transpose()?;
        let is_shared = matches!(config.store, StoreUrl::Shared(_));
        let jobs = config.jobs.clone().map(|settings| http::Jobs::new(settings, is_shared)).transpose();
        Ok(Self {
            tls: tls.map(Arc::new),
            admin_token,
            jobs: jobs.context("in the configuration file")?,
            brokers: Brokers::new(config.brokers.clone())?,
            task_lists: TaskLists::new(config.task_lists.clone())?,
            webhooks: Webhooks::new(config.webhooks.clone()).context("in the configuration file")?,
            traces: Traces::new(config.traces.clone()).context("in the configuration file")?,
            devices: Devices::new(config.devices.as_ref())?,
        })
    }
}

/// Settings with which a server can start, as far as they show that themselves.
pub(crate) struct Checked<'a> {
    config: &'a ServerConfig,
    parts: Parts,
}

impl<'a> Checked<'a> {
    /// Refuses settings with which no server can start: addresses that need tokens and TLS, unless `insecure` allows them,
    /// URLs, names, and files and folders that are missing or cannot be used. Connects to nothing and changes nothing.
    ///
    /// # Errors
    /// When there is such a setting. Names it.
    pub(crate) fn new(config: &'a ServerConfig, insecure: bool) -> anyhow::Result<Self> {
        config.check_address(insecure)?;
        wire::check(&config.store)?;
        Ok(Self { config, parts: Parts::new(config)? })
    }
}

impl Server {
    /// Opens the store and listens.
    pub(crate) async fn open(Checked { config, parts }: Checked<'_>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let jobs_listener = match config.jobs.as_ref().and_then(|jobs| jobs.listen) {
            Some(address) => Some(
                TcpListener::bind(address)
                    .await
                    .with_context(|| format!("[asyncwork]: cannot listen on {address}"))?,
            ),
            None => None,
        };
        let clock = Arc::new(SystemClock::new(windlass_core::Timestamp(0)));
        let address = match &config.advertise {
            Some(address) => address.clone(),
            None => format!("{}://{}", scheme(parts.tls.as_ref()), listener.local_addr()?),
        };
        let store = wire::open(&config.store, &clock, &address, config.resident).await?;
        let id = uuid::Uuid::new_v4();
        let engine = Arc::new(Engine::new(store, id.as_u64_pair().0));
        // Must precede all due work.
        engine.is_ahead(clock.ahead());
        let me = ServerState {
            id: ServerId(id.as_u128()),
            version: env!("CARGO_PKG_VERSION").into(),
            address: address.into(),
            level: FEATURE_LEVEL,
            started_at: clock.now().wall,
            heard_at: clock.now().wall,
            heard: clock.now().mono,
        };
        let membership = Membership::new(engine.clone(), me);
        loops::follow_store_first(&membership, &*clock).await.context("cannot read the time of the store")?;
        membership.run_once(clock.now()).await.context("cannot become a server of the store")?;
        Ok(Self {
            listener,
            jobs_listener,
            engine,
            clock,
            membership,
            retention: config.retention(),
            clients: config.clients,
            access: config.access.clone(),
            parts,
        })
    }

    /// Refuses a date of the machine that cannot be right.
    ///
    /// # Errors
    /// When it is years ahead; the message contains the fix.
    pub(crate) fn check_clock(&self) -> anyhow::Result<()> {
        self.clock.check_date(built_at())
    }

    /// The id of this server.
    pub(crate) fn id(&self) -> ServerId {
        self.membership.id()
    }

    /// The addresses of the other servers on the store.
    pub(crate) async fn others(&self) -> anyhow::Result<Vec<String>> {
        let (id, now) = (self.id(), self.clock.now());
        let servers = self.engine.servers().await?.into_iter();
        let others = servers.filter(|server| server.id != id && server.is_up(now.mono));
        Ok(others.map(|server| server.address.into()).collect())
    }

    /// The URL at which it listens.
    pub(crate) fn url(&self) -> anyhow::Result<String> {
        Ok(format!("{}://{}", scheme(self.parts.tls.as_ref()), self.address()?))
    }

    /// The address it listens on.
    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// The engine, for workers in the same process and for applying flows.
    pub(crate) fn engine(&self) -> Arc<Engine> {
        self.engine.clone()
    }

    /// The clock of everything in this process.
    pub(crate) fn clock(&self) -> Arc<SystemClock> {
        self.clock.clone()
    }

    /// Serves until `shutdown`, then lets requests in progress finish. If one of its loops ends, the server
    /// fails at once: the service manager restarts it, and everything that was answered is durable.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self { listener, engine, clock, membership, retention, clients, access, .. } = self;
        let Parts { tls, admin_token, jobs, brokers, task_lists, webhooks, traces, devices } = self.parts;
        let membership = Arc::new(membership);
        let mut running = Loops::default();
        let app = http::App::new(engine.clone(), clock.clone(), clients).serving(webhooks.modules());
        let app = app.with_jobs(jobs);
        let app = if access.tokens { app.requiring_tokens(access.admin_token_file) } else { app };
        let app = Arc::new(match tls.clone() {
            Some(tls) => app.encrypted_by(tls),
            None => app,
        });
        // Before the first commit, of which it may have to record spans and publish events.
        let traces = traces.start(&engine, &clock, &app.metrics.spans, &mut running);
        let (subscriber, webhooks) = webhooks.start(&app, &mut running);
        let ending = brokers.start(&app, &clock, subscriber.into_iter().collect(), &mut running)?;
        let lists = task_lists.start(&app, &mut running);
        let message_bytes = devices.message_bytes();
        let devices = devices.start(&engine, &clock, &mut running)?;
        let committer = || committer(&engine);
        if engine.shares_its_store() {
            running.spawn("decides and commits", loops::commit(engine.clone(), committer(), clock.clone()));
            let many = loops::commit_many(engine.clone(), committer(), clock.clone());
            running.spawn("decides and commits many", many);
        } else {
            for _ in 0..COMMITTERS {
                running
                    .spawn("decides and commits", loops::commit(engine.clone(), committer(), clock.clone()));
            }
        }
        running.spawn("reports to the service manager", service_manager::stay_alive(running.beside()));
        running.spawn("keeps leases", loops::keep_leases(engine.clone(), clock.clone()));
        running.spawn("does what is due", loops::keep_time(engine.clone(), clock.clone()));
        running.spawn("delivers messages", loops::deliver_messages(engine.clone(), clock.clone()));
        running.spawn("watches the clock", clock_watch::watch(engine.clone(), clock.clone()));
        running.spawn("reads changes by other servers", loops::hear_changes(engine.clone(), clock.clone()));
        let deleted = |rows| tracing::debug!(rows, "deleted rows after their retention");
        let janitor =
            Janitor::new(engine.clone(), retention, app.uptime_clock()).message_bytes(message_bytes);
        running.spawn("deletes old rows", loops::sweep(janitor, SWEEP_EVERY, clock.clone(), deleted));
        let reporter = DamageReporter::new(engine.clone());
        running.spawn("reports damaged rows", loops::report_damage(reporter, clock.clone(), |_| ()));
        let importer = EnqueueImporter::new(engine.clone(), Arc::new(http::EnqueuedReader(app.clone())));
        running.spawn("accepts enqueued tasks", loops::import_enqueued(importer, clock.clone(), |_| ()));
        let keeper = TriggerKeeper::new(engine.clone());
        running.spawn("fires triggers", loops::keep_triggers(keeper, clock.clone()));
        let keeper = RolloutKeeper::new(engine.clone());
        running.spawn("starts devices of rollouts", loops::keep_rollouts(keeper, clock.clone()));
        if access.tokens {
            access::ensure_admin(&engine, admin_token, clock.now()).await?;
            running.spawn("stores when tokens were last used", http::store_uses(app.clone()));
        }
        if let Some(tls) = tls {
            running.spawn("reads replaced certificates", http::refresh_certificates(tls));
        }
        let (outgrown, is_outgrown) = oneshot::channel();
        running.spawn("renews the membership", renew(membership.clone(), clock, outgrown));
        let jobs = async {
            match self.jobs_listener {
                Some(listener) => http::serve_jobs(listener, app.clone()).await,
                None => Ok(()),
            }
        };
        let served = async { tokio::try_join!(http::serve(listener, app.clone(), shutdown), jobs) };
        let ended = tokio::select! {
            served = served => served.map(drop).context("the HTTP server failed"),
            error = running.ended() => Err(error),
            Ok(error) = is_outgrown => Err(anyhow::Error::from(error).context("this server must stop")),
        };
        service_manager::is_stopping();
        tokio::join!(ending.end(), lists.end(), webhooks.end(), devices.end());
        traces.end().await;
        running.shutdown().await;
        // Without this, other servers would notice the end only after a timeout.
        if let Err(error) = membership.end().await {
            tracing::warn!(%error, "cannot record in the store that this server ends");
        }
        ended
    }
}

/// The scheme of the URL of a server.
fn scheme(tls: Option<&Arc<ServerTls>>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

/// Renews the membership until the store has a format that this version does not know; then sends that error.
async fn renew(membership: Arc<Membership>, clock: Arc<SystemClock>, outgrown: oneshot::Sender<EngineError>) {
    let error = loops::heartbeat(&membership, &*clock).await;
    // Nobody receives it where the server ends already.
    let _ = outgrown.send(error);
    std::future::pending().await
}

/// A committer that evaluates long expressions on separate threads, and others on the thread that handles requests.
fn committer(engine: &Arc<Engine>) -> Committer {
    Committer::new(engine.clone()).deciding_long(Arc::new(|work| drop(tokio::task::spawn_blocking(work))))
}
