//! The drills' own worker: the client library with a handler that writes to the ledger, in a process of its own, so that
//! it can be stopped and killed. Unlike `windlass worker` it starts no processes, can ask for a short lease, and can have
//! several sessions.

use std::{path::Path, path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Args;
use futures_util::future;
use serde::Deserialize;
use windlass_client::{Client, Failure, Job, Worker};

use super::ledger::Ledger;

/// The argument that starts this program as the worker.
pub(super) const COMMAND: &str = "drill-hand";

/// The properties of a process of workers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hand {
    /// The number of sessions.
    pub(super) sessions: usize,
    /// How many attempts each session runs at the same time.
    pub(super) concurrency: usize,
    /// The lease that the sessions ask for.
    pub(super) lease: Duration,
}

impl Hand {
    /// The command line of the process.
    pub(super) fn arguments(self, server: &str, name: &str, dir: &Path) -> [String; 6] {
        [
            format!("--server={server}"),
            format!("--name={name}"),
            format!("--dir={}", dir.display()),
            format!("--sessions={}", self.sessions),
            format!("--concurrency={}", self.concurrency),
            format!("--lease-ms={}", self.lease.as_millis()),
        ]
    }
}

/// The arguments of the process.
#[derive(Debug, Clone, Args)]
pub(crate) struct HandArgs {
    #[arg(long)]
    server: String,
    #[arg(long)]
    name: String,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    sessions: usize,
    #[arg(long)]
    concurrency: usize,
    #[arg(long)]
    lease_ms: u64,
}

/// The parameters of a step of the drills.
#[derive(Debug, Deserialize)]
struct Params {
    /// How long the step takes.
    #[serde(default)]
    ms: u64,
}

/// Runs the workers until SIGTERM.
pub(crate) fn run(args: &HandArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut workers = Vec::new();
        for _ in 0..args.sessions {
            workers.push(worker(args)?.run_until_signal());
        }
        future::try_join_all(workers).await?;
        Ok(())
    })
}

fn worker(args: &HandArgs) -> Result<Worker> {
    let ledger = Ledger::in_folder(&args.dir);
    let worker = Worker::builder(Client::new(&args.server)?)
        .name(&args.name)
        .concurrency(args.concurrency)
        .lease(Duration::from_millis(args.lease_ms))
        .command("drill.work", move |params, job| work(ledger.clone(), params, job))
        .command("drill.poison", poison)
        .build()?;
    Ok(worker)
}

async fn work(ledger: Ledger, params: Params, job: Job) -> Result<(), Failure> {
    let attempt = &job.attempt;
    ledger.begin(&attempt.idempotency_key, attempt.attempt, &attempt.token)?;
    tokio::time::sleep(Duration::from_millis(params.ms)).await;
    ledger.effect(&attempt.idempotency_key, attempt.attempt, &attempt.token)?;
    Ok(())
}

/// Kills its worker, as a command would that uses up the memory.
async fn poison(_: Params, _: Job) -> Result<(), Failure> {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .map_err(|error| Failure::new(error.to_string()))?;
    std::future::pending().await
}
