//! The worker library: takes attempts from a server, runs their handlers, and reports what became of them.
//!
//! ```text
//!            poll: attempts, cancels               one task each
//!  server ──────────────────────────▶ Driver ─────────────────────▶ Handler::run(Job)
//!         ◀──────────────────────────        ◀─────────────────────
//!           report calls: outcomes    Ledger        Outcome
//!                                     Outbox
//! ```
//!
//! Over a broker the attempts come as messages of its queues (`queues`), which the driver hears as a [`feed`], and it
//! reports to the server or, one way, on a queue: to its [`counterpart`].
//!
//! [`driver`] and its line to the server ([`link`]) are the only parts that do input and output. What it has
//! ([`ledger`]), what it has to say ([`outbox`]), how an outcome becomes a report ([`report`]) and when its lease is
//! over ([`lease`]) are decided by plain values without a clock, a runtime or a network.
//!
//! What happens when the server goes away: the poll and the reports are tried again for ever ([`crate::pacing`]);
//! attempts go on, and are stopped once the lease may be over. When the worker goes away, the server gives its
//! attempts to others.

mod builder;
mod calls;
mod control;
mod counterpart;
mod drain;
mod driver;
mod failure;
mod feed;
mod handler;
mod job;
mod jobs;
mod lease;
mod ledger;
mod line;
mod link;
mod outbox;
mod outcome;
#[cfg(feature = "brokers")]
mod queues;
mod registry;
mod report;
mod typed;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

pub use builder::WorkerBuilder;
pub use failure::Failure;
pub use handler::Handler;
pub use job::Job;
pub use outcome::Outcome;
use registry::Registry;
use windlass_api::WorkerInfo;

use crate::{Client, Error};

/// Names one attempt that was handed out; a clone is a pointer.
type Token = Arc<str>;

/// What a worker is and may do: fixed for its life.
#[derive(Debug)]
struct Settings {
    info: WorkerInfo,
    concurrency: usize,
    /// The lease to ask for, where the server's default is not wanted.
    lease: Option<Duration>,
    drain_timeout: Duration,
}

/// Where a worker's attempts come from.
#[derive(Debug)]
enum Work {
    /// The server hands them out.
    Server(Client),
    /// They come on the queues of a broker.
    #[cfg(feature = "brokers")]
    Queues(queues::Setup),
}

/// Serves modules: made by [`Worker::builder`].
#[derive(Debug)]
pub struct Worker {
    work: Work,
    settings: Settings,
    registry: Registry,
}

impl Worker {
    /// A worker that will take its work from that server.
    pub fn builder(client: Client) -> WorkerBuilder {
        WorkerBuilder::new(client)
    }

    /// A worker that will take its work from the queues of a broker and tell on a queue of it what became of that, without
    /// a server: see [`WorkerBuilder::over`] for one that has both. Nobody says there whose an attempt is, so what comes
    /// twice may run twice, and nobody can cancel it; log lines and progress are told to nobody.
    #[cfg(feature = "brokers")]
    pub fn one_way(
        broker: Arc<dyn windlass_brokers::Broker>,
        results: windlass_brokers::Queue,
    ) -> WorkerBuilder {
        WorkerBuilder::one_way(broker, results)
    }

    /// Works until `shutdown` is there, then drains: takes nothing more, lets what runs end and reports it, and
    /// returns. A server that goes away is waited for; so is one that is not there yet.
    ///
    /// Dropping the future drops the futures of all handlers.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server refuses the worker's first call, [`Error::Broker`] if the broker does: it will not
    /// be any different later.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        self.run_with(shutdown, std::future::pending()).await
    }

    /// As [`Worker::run`], until SIGTERM or SIGINT; a second one stops at once, without waiting for anything.
    ///
    /// # Errors
    /// As [`Worker::run`]; [`Error::Invalid`] if the signals cannot be listened to.
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
        let Self { work, settings, registry } = self;
        let (counterpart, feed) = match work {
            Work::Server(client) => {
                let session: Box<dyn counterpart::Counterpart> = Box::new(calls::Session::new(client));
                (session, None)
            }
            #[cfg(feature = "brokers")]
            Work::Queues(setup) => setup.start(&settings, registry.modules()).await?,
        };
        driver::Driver::new(settings, registry, counterpart, feed).run(shutdown, stop).await
    }
}

/// The signals that ask a program to end.
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
        // Without a way to listen nobody can ask: the worker goes on.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
