//! The benchmark's worker: commands that do nothing, through the same library as any worker.

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use async_trait::async_trait;
use windlass_client::{Client, Failure, Handler, Job, Outcome, Worker};

use super::measure::wall_us;

/// The program is started with this, the server's address and how many attempts it takes at once to be a worker.
pub(crate) const WORKER_COMMAND: &str = "bench-worker";

struct Bench;

#[derive(serde::Deserialize)]
struct Params {
    sent_us: u64,
}

#[async_trait]
impl Handler for Bench {
    async fn run(&self, job: Job) -> Outcome {
        if job.attempt.command == "fail" {
            return Outcome::Failed(Failure { message: "as asked".to_owned(), code: 1, retryable: false });
        }
        // Only the latency workload looks at the result; the others return none, as a no-op does.
        if job.attempt.flow != "latency" {
            return Outcome::Succeeded(None);
        }
        match job.params::<Params>() {
            Ok(Params { sent_us }) => {
                let result = serde_json::json!({"picked_up_us": wall_us().saturating_sub(sent_us)});
                Outcome::Succeeded(serde_json::value::to_raw_value(&result).ok())
            }
            Err(error) => Outcome::Failed(Failure { message: error.to_string(), code: 65, retryable: false }),
        }
    }
}

/// Runs the worker until SIGTERM.
pub(crate) fn run_worker(arguments: &[OsString]) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &[OsString]) -> anyhow::Result<()> {
    let [server, slots] = arguments else { anyhow::bail!("usage: {WORKER_COMMAND} SERVER SLOTS") };
    let slots = slots.to_string_lossy().parse()?;
    let client = Client::new(&server.to_string_lossy())?;
    let worker = Worker::builder(client)
        .name("bench")
        .concurrency(slots)
        .module("bench", None, Arc::new(Bench))
        .build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(worker.run_until_signal())?)
}
