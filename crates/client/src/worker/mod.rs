//! The worker library: claims attempts from a server, runs their handlers, and reports their outcomes.
//!
//! ```text
//!            poll: attempts, cancels               one task each
//!  server ──────────────────────────▶ Driver ─────────────────────▶ Handler::run(Job)
//!         ◀──────────────────────────        ◀─────────────────────
//!           report calls: outcomes    Ledger        Outcome
//!                                     Outbox
//! ```
//!
//! Over a broker the attempts come as messages of its queues (`queues`). The driver gets them from a
//! [`feed`], and reports to its [`counterpart`]: the server or, one way, a queue.
//!
//! Only [`driver`] and its connection to the server ([`link`]) do input and output. The claimed attempts
//! ([`ledger`]), the unsent reports ([`outbox`]), the conversion of outcomes ([`report`]) and the lease
//! ([`lease`]) are plain values without a clock, a runtime or a network.
//!
//! An exclusive worker has one session for each leadership (`exclusive`): without leadership it has none.
//!
//! When the server is unavailable, or refuses the worker's token, polls and reports are retried for ever
//! ([`crate::pacing`], [`outage`]). Attempts continue, and are stopped once the lease may be over. When the worker
//! is gone, the server lets other workers claim its attempts.

mod builder;
mod calls;
mod control;
mod counterpart;
mod drain;
mod driver;
#[cfg(feature = "coordinators")]
mod exclusive;
mod failure;
mod feed;
mod handler;
mod job;
mod jobs;
mod lease;
mod ledger;
mod line;
mod link;
mod outage;
mod outbox;
mod outcome;
mod polls;
#[cfg(feature = "brokers")]
mod queues;
mod registry;
mod report;
mod secrets;
mod typed;

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

pub use builder::WorkerBuilder;
pub use failure::Failure;
pub use handler::Handler;
pub use job::Job;
pub use outcome::Outcome;
use registry::Registry;
pub use secrets::Secrets;
use windlass_api::WorkerInfo;

use crate::{Client, Error, Term};

/// Identifies one claimed attempt; cheap to clone.
type Token = Arc<str>;

/// The settings of a worker, fixed for its life.
#[derive(Debug, Clone)]
struct Settings {
    info: WorkerInfo,
    concurrency: usize,
    /// The lease to request; none = the server's default.
    lease: Option<Duration>,
    drain_timeout: Duration,
}

/// The source of a worker's attempts.
#[derive(Debug, Clone)]
enum Work {
    /// The worker claims them from the server.
    Server(Client),
    /// They come from the queues of a broker.
    #[cfg(feature = "brokers")]
    Queues(queues::Setup),
}

/// A worker that serves modules: made by [`Worker::builder`].
#[derive(Debug)]
pub struct Worker {
    work: Work,
    settings: Settings,
    registry: Arc<Registry>,
    /// The name that the worker must lead; none = it always works.
    #[cfg(feature = "coordinators")]
    exclusive: Option<exclusive::Exclusive>,
}

impl Worker {
    /// Starts to build a worker for this server.
    pub fn builder(client: Client) -> WorkerBuilder {
        WorkerBuilder::new(client)
    }

    /// Starts to build a worker that receives its steps from the queues of a broker and sends results to
    /// another queue, without a server. See [`WorkerBuilder::over`] for a worker with both. Nothing
    /// deduplicates messages here: a step delivered twice may run twice. Attempts cannot be cancelled, and
    /// log lines and progress are dropped.
    #[cfg(feature = "brokers")]
    pub fn one_way(
        broker: Arc<dyn windlass_brokers::Broker>,
        results: windlass_brokers::Queue,
    ) -> WorkerBuilder {
        WorkerBuilder::one_way(broker, results)
    }

    /// Works until `shutdown` resolves, then drains: accepts no more attempts, lets running ones end, reports
    /// them, and returns. Retries while the server is unavailable, also at the start. After the first answer it also
    /// retries what an operator must correct, such as a refused token: see [`Client::with_token_file`].
    ///
    /// Dropping the future drops the futures of all handlers.
    ///
    /// # Errors
    /// If the first call fails for a reason that no waiting corrects: [`Error::Refused`] if the server refuses it, for
    /// example its token, and [`Error::Unreachable`] if the certificates do not fit. [`Error::Broker`] if the broker, and
    /// [`Error::Coordinator`] if the coordinator permanently refuses a call.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        self.run_with(shutdown, std::future::pending()).await
    }

    /// Like [`Worker::run`], until SIGTERM or SIGINT. A second signal stops the worker at once, without
    /// waiting.
    ///
    /// # Errors
    /// As [`Worker::run`]; [`Error::Invalid`] if signal handlers cannot be installed.
    pub async fn run_until_signal(self) -> Result<(), Error> {
        let listen = || {
            Signals::listen().map_err(|error| Error::Invalid(format!("cannot listen to signals: {error}")))
        };
        let (mut first, mut second) = (listen()?, listen()?);
        let stop = async {
            second.next().await;
            second.next().await;
        };
        self.run_with(async move { first.next().await }, stop).await
    }

    async fn run_with(
        self,
        shutdown: impl Future<Output = ()>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let shutdown = pin!(shutdown);
        let stop = pin!(stop);
        #[cfg(feature = "coordinators")]
        if let Some(exclusive) = &self.exclusive {
            return exclusive.run(&self, shutdown, stop).await;
        }
        self.session(None, shutdown, stop).await
    }

    /// Works in one session, under this leadership if it needs one, until it is shut down and drained, stopped,
    /// or the leadership is at risk and the attempts have ended.
    async fn session(
        &self,
        term: Option<Term>,
        shutdown: Pin<&mut impl Future<Output = ()>>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let Self { work, settings, registry, .. } = self;
        let (counterpart, feed) = match work.clone() {
            Work::Server(client) => {
                let session: Box<dyn counterpart::Counterpart> = Box::new(calls::Session::new(client));
                (session, None)
            }
            #[cfg(feature = "brokers")]
            Work::Queues(setup) => setup.start(settings, registry.modules()).await?,
        };
        let ends = driver::Ends { counterpart, feed };
        driver::Driver::new(settings.clone(), registry.clone(), ends, term).run(shutdown, stop).await
    }
}

/// The stop signals.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    fn listen() -> std::io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        // Without signals nothing stops the worker.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
