//! What the tests of the worker share.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::{sync::oneshot, task::JoinHandle};
use windlass_client::{
    Client, Error, Handler, Job, Outcome, Worker, WorkerBuilder,
    api::{Attempt, Report},
};

use crate::exchange_server::ExchangeServer;

/// An attempt at `m.c`.
pub(crate) fn attempt(token: &str) -> Attempt {
    serde_json::from_value(serde_json::json!({
        "token": token, "task": "task", "flow": "flow", "step": "step", "cursor": 0, "direction": "forward",
        "attempt": 1, "module": "m", "command": "c", "params": {"token": token}, "timeout_ms": 60_000,
        "idempotency_key": format!("key-{token}"),
    }))
    .unwrap()
}

/// A function as the handler of the module `m`.
struct FunctionHandler<F>(F);

#[async_trait]
impl<F: Fn(Job) -> BoxFuture<'static, Outcome> + Send + Sync + 'static> Handler for FunctionHandler<F> {
    async fn run(&self, job: Job) -> Outcome {
        (self.0)(job).await
    }
}

pub(crate) fn handler<Fut>(run: impl Fn(Job) -> Fut + Send + Sync + 'static) -> Arc<dyn Handler>
where
    Fut: Future<Output = Outcome> + Send + 'static,
{
    Arc::new(FunctionHandler(move |job| -> BoxFuture<'static, Outcome> { Box::pin(run(job)) }))
}

/// A worker that runs beside the test.
pub(crate) struct RunningWorker {
    shutdown: Option<oneshot::Sender<()>>,
    end: JoinHandle<Result<(), Error>>,
}

impl RunningWorker {
    pub(crate) fn start(server: &ExchangeServer, handler: Arc<dyn Handler>) -> Self {
        Self::start_with(server, |builder| builder.module("m", None, handler).concurrency(128))
    }

    pub(crate) fn start_with(
        server: &ExchangeServer,
        build: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> Self {
        let client = Client::new(&server.address.to_string()).unwrap();
        Self::start_built(build(Worker::builder(client).name("test")).build().unwrap())
    }

    pub(crate) fn start_built(worker: Worker) -> Self {
        let (shutdown, heard) = oneshot::channel();
        let end = tokio::spawn(worker.run(async {
            heard.await.ok();
        }));
        Self { shutdown: Some(shutdown), end }
    }

    pub(crate) fn shut_down(&mut self) {
        if let Some(shutdown) = self.shutdown.take() {
            shutdown.send(()).ok();
        }
    }

    /// Ends it in the middle of what it does, as if it was killed.
    #[cfg(feature = "brokers")]
    pub(crate) async fn killed(self) {
        self.end.abort();
        self.end.await.unwrap_err();
    }

    pub(crate) async fn drained(mut self) -> Result<(), Error> {
        self.shut_down();
        self.ended().await
    }

    pub(crate) async fn ended(self) -> Result<(), Error> {
        // Dropping the sender would be a shutdown.
        let _shutdown = self.shutdown;
        tokio::time::timeout(Duration::from_secs(20), self.end).await.expect("the worker ends").unwrap()
    }
}

pub(crate) fn message(report: &Report) -> &str {
    report.error.as_ref().map_or("", |error| &error.message)
}
