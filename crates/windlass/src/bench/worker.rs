//! The benchmark's worker: its commands do nothing, and it uses the public client library.

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use async_trait::async_trait;
use windlass_brokers::Queue;
use windlass_client::{Failure, Handler, Job, Outcome, Worker};

use super::{measure::wall_us, security::Entry};

/// Makes the program a bench worker. The arguments are the server's address and the number of concurrent
/// attempts; with a broker in [`BROKER_VARIABLE`] also the queue and the way of the results.
pub(crate) const WORKER_COMMAND: &str = "bench-worker";

/// The environment variable for the broker's URL.
pub(super) const BROKER_VARIABLE: &str = "WINDLASS_BENCH_BROKER";

/// Argument that makes the worker send results over the broker.
pub(super) const ONE_WAY: &str = "one-way";

/// The queue for results over the broker.
pub(super) fn results_of(queue: &str) -> String {
    format!("{queue}-results")
}

/// The module of the worker.
pub(super) const MODULE: &str = "bench";

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
        // Only the latency workload uses the result; the others return none.
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
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let [server, slots, broker @ ..] = &arguments[..] else {
        anyhow::bail!("usage: {WORKER_COMMAND} SERVER SLOTS [QUEUE WAY]")
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    let builder = match broker {
        [queue, way] => {
            let url =
                std::env::var(BROKER_VARIABLE).with_context(|| format!("{BROKER_VARIABLE} is not set"))?;
            let broker = windlass_brokers::connect(&url)?;
            let builder = if way == ONE_WAY {
                Worker::one_way(broker, Queue::new(results_of(queue)))
            } else {
                Worker::builder(Entry::from_environment().client(server)?).over(broker)
            };
            builder.queue(MODULE, Queue::new(queue.as_ref()))
        }
        _ => Worker::builder(Entry::from_environment().client(server)?),
    };
    let worker =
        builder.name("bench").concurrency(slots.parse()?).module(MODULE, None, Arc::new(Bench)).build()?;
    Ok(runtime.block_on(worker.run_until_signal())?)
}
