//! The server: an engine over a store, its services in loops, and the HTTP interface before it.

use std::{
    future::Future,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{net::TcpListener, sync::oneshot, time};
use windlass_core::Millis;
use windlass_engine::{
    Engine, EngineError,
    ports::{Clock, Retention, ServerId, ServerState, StoreError},
    services::{
        Clerk, Committer, DamageReporter, Dispatcher, HEARTBEAT_EVERY, Janitor, LeaseKeeper, Lookout,
        Membership, Messenger, Reclaimer, Timekeeper,
    },
};

use crate::{
    brokers::Brokers,
    clock::{SystemClock, built_at},
    clock_watch,
    config::ServerConfig,
    http,
    loops::Loops,
    wire,
};

/// The longest time between two looks at what is due: other servers on the same store wake nobody here.
const TICK: Duration = Duration::from_millis(100);

/// The shortest time between two looks at what is due.
const TICK_MIN: Duration = Duration::from_millis(1);

/// How often old things are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Between two batches of deletions, so that they never hold up the rest.
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// Batches decided at once: one while the other waits for the disk.
const COMMITTERS: usize = 2;

/// Between two looks at what others made ready. They tell of what comes to an empty queue, and not again within half of
/// this.
const NEWS_PAUSE: Duration = Duration::from_millis(20);

/// How often it is looked for what applications enqueued, where nobody tells.
const ENQUEUED_EVERY: Duration = Duration::from_secs(1);

/// How often damaged rows are reported.
const REPORT_DAMAGE_EVERY: Duration = Duration::from_secs(1);

/// The level of features of this version. A server knows the formats up to its own, and writes none above the lowest
/// level of all servers on the store.
const FEATURE_LEVEL: u32 = 1;

/// A question for the time that took longer says little about it.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);

/// A server that is ready to run.
pub(crate) struct Server {
    listener: TcpListener,
    engine: Arc<Engine>,
    clock: Arc<SystemClock>,
    membership: Membership,
    retention: Retention,
    clients: http::ClientLimits,
    brokers: Brokers,
}

impl Server {
    /// Opens the store and listens.
    pub(crate) async fn open(config: &ServerConfig) -> anyhow::Result<Self> {
        // The address first: it is the cheaper thing to find taken.
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let brokers = Brokers::new(config.brokers.clone())?;
        let clock = Arc::new(SystemClock::new(windlass_core::Timestamp(0)));
        let address = match &config.advertise {
            Some(address) => address.clone(),
            None => format!("http://{}", listener.local_addr()?),
        };
        let store = wire::open(&config.store, &clock, &address, config.resident).await?;
        let id = uuid::Uuid::new_v4();
        let engine = Arc::new(Engine::new(store, id.as_u64_pair().0));
        // Before anything is done that is due.
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
        follow_store(&membership, &clock).await.context("the store does not tell the time")?;
        membership.run_once(clock.now()).await.context("cannot become a server of the store")?;
        Ok(Self {
            listener,
            engine,
            clock,
            membership,
            retention: config.retention(),
            clients: config.clients,
            brokers,
        })
    }

    /// Refuses a date of the machine that cannot be true.
    ///
    /// # Errors
    /// When it is years ahead, with what to do.
    pub(crate) fn check_clock(&self) -> anyhow::Result<()> {
        self.clock.check_date(built_at())
    }

    /// Which server this is.
    pub(crate) fn id(&self) -> ServerId {
        self.membership.id()
    }

    /// Where the other servers on its store are.
    pub(crate) async fn others(&self) -> anyhow::Result<Vec<String>> {
        let (id, now) = (self.id(), self.clock.now());
        let servers = self.engine.servers().await?.into_iter();
        let others = servers.filter(|server| server.id != id && server.is_up(now.mono));
        Ok(others.map(|server| server.address.into()).collect())
    }

    /// The address it listens on.
    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// The engine, for workers in the same process and for applying flows.
    pub(crate) fn engine(&self) -> Arc<Engine> {
        self.engine.clone()
    }

    /// The clock that everything in this process goes by.
    pub(crate) fn clock(&self) -> Arc<SystemClock> {
        self.clock.clone()
    }

    /// Serves until `shutdown`, then lets what is under way end. When one of its loops ends, it fails at once:
    /// whoever runs it starts it again, and what was answered is on disk.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self { listener, engine, clock, membership, retention, clients, brokers } = self;
        let membership = Arc::new(membership);
        let mut loops = Loops::default();
        let app = Arc::new(http::App::new(engine.clone(), clock.clone(), clients));
        // Before anything is committed, which may be to be announced.
        let couriers = brokers.start(&app, &clock, &mut loops)?;
        if engine.shares_its_store() {
            loops.spawn("decides and commits", commit(engine.clone(), clock.clone()));
            loops.spawn("decides and commits many", commit_many(engine.clone(), clock.clone()));
        } else {
            for _ in 0..COMMITTERS {
                loops.spawn("decides and commits", commit(engine.clone(), clock.clone()));
            }
        }
        loops.spawn("keeps leases", keep_leases(engine.clone(), clock.clone()));
        loops.spawn("does what is due", keep_time(engine.clone(), clock.clone()));
        loops.spawn("watches the clock", clock_watch::watch(engine.clone(), clock.clone()));
        loops.spawn("hears of other servers", hear_news(engine.clone(), clock.clone()));
        let (outgrown, is_outgrown) = oneshot::channel();
        loops.spawn("is one of the servers", be_heard(membership.clone(), clock.clone(), outgrown));
        loops.spawn("deletes what is old", sweep(engine.clone(), clock.clone(), retention));
        loops.spawn("reports damaged rows", report_damage(engine.clone()));
        let reader = Arc::new(http::EnqueuedReader(app.clone()));
        loops.spawn("takes in what was enqueued", take_in(Clerk::new(engine, reader), clock));
        let ended = tokio::select! {
            served = http::serve(listener, app, shutdown) => served.context("the HTTP server failed"),
            error = loops.ended() => Err(error),
            Ok(error) = is_outgrown => Err(anyhow::Error::from(error).context("this server must not go on")),
        };
        couriers.end().await;
        loops.shutdown().await;
        // Others would go on in time without this.
        if let Err(error) = membership.end().await {
            tracing::warn!(%error, "the store could not be told that this server ends");
        }
        ended
    }
}

/// A committer that evaluates expressions which may take long on threads of their own: everything else in this process,
/// requests as well, shares one thread.
fn committer(engine: &Arc<Engine>) -> Committer {
    Committer::new(engine.clone()).deciding_long(Arc::new(|work| drop(tokio::task::spawn_blocking(work))))
}

/// Decides and commits what comes in.
async fn commit(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    let committer = committer(&engine);
    loop {
        engine.inbox().wait().await;
        while committer.run_once(|| clock.now()).await > 0 {}
    }
}

/// Decides and commits what comes in while another batch is under way, where servers share a store. A round trip costs as
/// much for one item as for many, so what are few wait for the other batch and go together.
async fn commit_many(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    let committer = committer(&engine);
    loop {
        engine.inbox().wait_for_many().await;
        committer.run_once(|| clock.now()).await;
    }
}

/// Keeps leases. Nothing in this loop waits for a commit: a server that waits for a slow disk looks as if it had stood still.
async fn keep_leases(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    let lease_keeper = LeaseKeeper::new(engine.clone());
    loop {
        let kept = lease_keeper.run_once(clock.now()).await;
        if let Err(error) = &kept {
            tracing::warn!(%error, "the store could not be told of workers; it is told again");
        }
        tokio::select! {
            () = time::sleep(pause_until(engine.next_poll_end(clock.now()), kept.is_err())) => {}
            () = engine.polls_closed().wait(), if kept.is_ok() => {}
        }
    }
}

/// Does what is due, takes attempts from workers that are gone, carries messages, looks at what other servers did, hands
/// out what became ready by itself.
async fn keep_time(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    let timekeeper = Timekeeper::new(engine.clone());
    let reclaimer = Reclaimer::new(engine.clone());
    let messenger = Messenger::new(engine.clone());
    let lookout = Lookout::new(engine.clone());
    let dispatcher = Dispatcher::new(engine.clone());
    loop {
        let results = (
            reclaimer.run_once(clock.now()).await.map(drop),
            timekeeper.run_once(clock.now()).await,
            messenger.run_once(clock.now()).await,
            lookout.run_once(clock.now()).await,
            dispatcher.run_once(clock.now()).await,
        );
        let errors = [results.0.err(), results.1.err(), results.2.err(), results.3.err(), results.4.err()];
        let has_failed = errors.iter().any(Option::is_some);
        for error in errors.into_iter().flatten() {
            tracing::warn!(%error, "what is due could not be done; it is tried again");
        }
        tokio::select! {
            () = time::sleep(pause_until(engine.next_wake(clock.now()), has_failed)) => {}
            () = engine.timers().wait(), if !has_failed => {}
        }
    }
}

/// Hands out what others made ready, as soon as they tell.
async fn hear_news(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    let dispatcher = Dispatcher::new(engine.clone());
    loop {
        engine.news().await;
        // Once more after the pause, for what was made ready in it and not told.
        for _ in 0..2 {
            if let Err(error) = dispatcher.run_once(clock.now()).await {
                tracing::warn!(%error, "what others made ready could not be handed out; it is tried again");
            }
            time::sleep(NEWS_PAUSE).await;
        }
    }
}

/// Says that this server is there, and goes by the store's clock where that is shared. When the store has become another
/// one than this program knows it tells `outgrown`, and does no more.
async fn be_heard(
    membership: Arc<Membership>,
    clock: Arc<SystemClock>,
    outgrown: oneshot::Sender<EngineError>,
) {
    loop {
        time::sleep(Duration::from_millis(HEARTBEAT_EVERY.0)).await;
        if let Err(error) = follow_store(&membership, &clock).await {
            tracing::warn!(%error, "the store does not tell the time; it is asked again");
        }
        match membership.run_once(clock.now()).await {
            Err(error @ EngineError::Store(StoreError::Outgrown(_))) => {
                // Nobody listens where the server ends already.
                let _ = outgrown.send(error);
                return std::future::pending().await;
            }
            Err(error) => {
                tracing::warn!(%error, "the store could not be told that this server is there; it is told again");
            }
            Ok(()) => {}
        }
    }
}

/// Goes by the store's clock, where that is shared. Where it was set ahead no lease ends by that.
async fn follow_store(membership: &Membership, clock: &SystemClock) -> Result<(), EngineError> {
    let asked = Instant::now();
    let Some(time) = membership.time().await? else { return Ok(()) };
    let took = asked.elapsed();
    if took > ROUND_TRIP_MAX {
        return Ok(());
    }
    if let Some(then) = clock.jump_to(time) {
        membership.forgive(then).await?;
    }
    clock.follow(time, took / 2);
    Ok(())
}

/// Takes in what applications enqueued by SQL.
async fn take_in(clerk: Clerk, clock: Arc<SystemClock>) {
    loop {
        match clerk.run_once(clock.now()).await {
            Ok(0) => {}
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(%error, "what was enqueued could not be taken in; it is tried again")
            }
        }
        // Before the next look something passes in any case: what cannot be taken in now still waits.
        time::sleep(TICK_MIN).await;
        tokio::select! {
            () = clerk.arrival() => {}
            () = time::sleep(ENQUEUED_EVERY) => {}
        }
    }
}

/// Raises alarms about tasks whose rows are damaged.
async fn report_damage(engine: Arc<Engine>) {
    let reporter = DamageReporter::new(engine);
    loop {
        time::sleep(REPORT_DAMAGE_EVERY).await;
        if let Err(error) = reporter.run_once().await {
            tracing::warn!(%error, "damaged rows could not be reported; it is tried again");
        }
    }
}

/// How long to wait for what is next due. What could not be done stays due, and a store that fails is not to be
/// asked again and again without a pause.
fn pause_until(wake: Option<Millis>, has_failed: bool) -> Duration {
    match wake {
        Some(wake) if !has_failed => Duration::from_millis(wake.0).clamp(TICK_MIN, TICK),
        _ => TICK,
    }
}

/// Deletes what was kept long enough.
async fn sweep(engine: Arc<Engine>, clock: Arc<SystemClock>, retention: Retention) {
    let janitor = Janitor::new(engine, retention);
    loop {
        time::sleep(SWEEP_EVERY).await;
        loop {
            match janitor.run_once(clock.now()).await {
                Ok(0) => break,
                Ok(rows) => tracing::debug!(rows, "deleted what was kept long enough"),
                Err(error) => {
                    tracing::warn!(%error, "old tasks could not be deleted; it is tried again");
                    break;
                }
            }
            time::sleep(SWEEP_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_looked_at_in_time_but_a_store_that_fails_gets_a_pause() {
        assert_eq!(pause_until(Some(Millis(20)), false), Duration::from_millis(20));
        assert_eq!(pause_until(Some(Millis(0)), false), TICK_MIN);
        assert_eq!(pause_until(None, false), TICK);
        assert_eq!(pause_until(Some(Millis(0)), true), TICK);
    }
}
