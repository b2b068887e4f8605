//! The server: an engine over a store, its services in loops, and the HTTP interface before it.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{net::TcpListener, time};
use windlass_engine::{
    Engine,
    ports::{Clock, Retention},
    services::{Committer, Dispatcher, Janitor, LeaseKeeper, Messenger, Timekeeper},
};

use crate::{clock::SystemClock, config::ServerConfig, http, loops::Loops, wire};

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

/// A server that is ready to run.
pub(crate) struct Server {
    listener: TcpListener,
    engine: Arc<Engine>,
    clock: Arc<SystemClock>,
}

impl Server {
    /// Opens the store and listens.
    pub(crate) async fn open(config: &ServerConfig) -> anyhow::Result<Self> {
        // The address first: it is the cheaper thing to find taken.
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let clock = Arc::new(SystemClock::new(windlass_core::Timestamp(0)));
        let store = wire::open(&config.store, &clock, &format!("http://{}", listener.local_addr()?)).await?;
        let random = uuid::Uuid::new_v4().as_u64_pair().0;
        Ok(Self { listener, engine: Arc::new(Engine::new(store, random)), clock })
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
        let Self { listener, engine, clock } = self;
        let mut loops = Loops::default();
        for _ in 0..COMMITTERS {
            loops.spawn("decides and commits", commit(engine.clone(), clock.clone()));
        }
        loops.spawn("does what is due", keep_time(engine.clone(), clock.clone()));
        loops.spawn("deletes what is old", sweep(engine.clone(), clock.clone()));
        let app = Arc::new(http::App::new(engine, clock));
        let ended = tokio::select! {
            served = http::serve(listener, app, shutdown) => served.context("the HTTP server failed"),
            error = loops.ended() => Err(error),
        };
        loops.shutdown().await;
        ended
    }
}

/// Decides and commits what comes in.
async fn commit(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    let committer = Committer::new(engine.clone());
    loop {
        engine.inbox().wait().await;
        while committer.run_once(clock.now()).await > 0 {}
    }
}

/// Does what is due, watches over leases, carries messages, hands out what became ready by itself.
async fn keep_time(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    let timekeeper = Timekeeper::new(engine.clone());
    let lease_keeper = LeaseKeeper::new(engine.clone());
    let messenger = Messenger::new(engine.clone());
    let dispatcher = Dispatcher::new(engine.clone());
    loop {
        let results = (
            lease_keeper.run_once(clock.now()).await,
            timekeeper.run_once(clock.now()).await,
            messenger.run_once(clock.now()).await,
            dispatcher.run_once(clock.now()).await,
        );
        for error in
            [results.0.err(), results.1.err(), results.2.err(), results.3.err()].into_iter().flatten()
        {
            tracing::warn!(%error, "what is due could not be done; it is tried again");
        }
        let pause = engine.next_wake(clock.now()).map_or(TICK, |wake| Duration::from_millis(wake.0));
        tokio::select! {
            () = time::sleep(pause.clamp(TICK_MIN, TICK)) => {}
            () = engine.timers().wait() => {}
        }
    }
}

/// Deletes what was kept long enough.
async fn sweep(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    let janitor = Janitor::new(engine, Retention::default());
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
