//! `windlass bench`: measures the speed of the program on this machine, as processes over HTTP with every
//! step on disk.
//!
//! A server on a fresh SQLite file and a worker whose commands do nothing run as separate processes; a
//! database can have several of both. This process is the client. The run ends when all tasks have ended and
//! are counted.

mod balancer;
mod measure;
mod security;
mod site;
mod worker;

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use windlass_api::{FlowDocument, SubmitBatch, SubmitTask, Task, TaskStatus};
use windlass_client::{Client, TaskFilter};

use measure::{Latencies, StoreCounts, cpu_ms};
use site::Site;

pub(crate) use site::Setting;
pub(crate) use worker::{WORKER_COMMAND, run_worker};

/// Submits in flight at once.
const IN_FLIGHT: usize = 64;

/// Tasks in one batch of the bulk workload.
const BATCH: u64 = 1000;

/// The shortest and the longest pause between two checks for open attempts. A database counts them row by row, so each pause is
/// [`PAUSE_FACTOR`] times as long as the check.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];
const PAUSE_FACTOR: u32 = 20;

/// After this time without progress, check that all processes still run.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// After this time without progress, the run has failed.
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// The workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// One step that does nothing.
    Noop,
    /// The same, submitted in batches.
    Bulk,
    /// Three steps.
    Chain3,
    /// Three steps of which the last fails, and all three are rolled back.
    Saga3,
    /// One task at a time, timed until its step is picked up.
    Latency,
    /// One task of three steps at a time.
    Chain3Latency,
    /// One step that does nothing, of tasks in one exclusive queue.
    Exclusive,
}

/// The results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    workload: &'static str,
    n: u64,
    seconds: f64,
    per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_per_s: Option<f64>,
    p50_ms: f64,
    p99_ms: f64,
    cpu_ms_per_task: f64,
    cpu_ms_server: f64,
    cpu_ms_worker: f64,
    cpu_ms_client: f64,
    server_rss_mb: f64,
    server_rss_idle_mb: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trips_per_transition: Option<f64>,
    /// Transitions decided again after a conflict.
    conflicts: f64,
}

impl fmt::Display for Measured {
    /// The results as text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} tasks in {:.2} s", self.workload, self.n, self.seconds)?;
        match self.finished_per_s {
            Some(finished) => {
                writeln!(f, "accepted  {:.0} tasks/s", self.per_s)?;
                writeln!(f, "finished  {finished:.0} tasks/s")?;
            }
            None => writeln!(f, "finished  {:.0} tasks/s", self.per_s)?,
        }
        writeln!(f, "latency   {:.2} ms p50, {:.2} ms p99", self.p50_ms, self.p99_ms)?;
        writeln!(
            f,
            "cpu       {:.3} ms per task: server {:.3}, worker {:.3}, client {:.3}",
            self.cpu_ms_per_task, self.cpu_ms_server, self.cpu_ms_worker, self.cpu_ms_client
        )?;
        write!(
            f,
            "memory    {:.1} MiB, the server, {:.1} MiB idle",
            self.server_rss_mb, self.server_rss_idle_mb
        )?;
        match self.round_trips_per_transition {
            Some(trips) => {
                let conflicts = self.conflicts;
                write!(f, "\nstore     {trips:.3} round trips per transition, {conflicts} conflicts")
            }
            None => Ok(()),
        }
    }
}

impl Workload {
    /// Its name on the command line and in the output.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Bulk => "bulk",
            Self::Chain3 => "chain3",
            Self::Saga3 => "saga3",
            Self::Latency => "latency",
            Self::Chain3Latency => "chain3-latency",
            Self::Exclusive => "exclusive",
        }
    }

    fn steps(self) -> usize {
        match self {
            Self::Noop | Self::Bulk | Self::Latency | Self::Exclusive => 1,
            Self::Chain3 | Self::Saga3 | Self::Chain3Latency => 3,
        }
    }

    /// The number of reports for each task.
    fn reports(self) -> u64 {
        let rollbacks = if self == Self::Saga3 { self.steps() } else { 0 };
        (self.steps() + rollbacks) as u64
    }

    /// The final status of its tasks.
    fn ending(self) -> TaskStatus {
        if self == Self::Saga3 { TaskStatus::RolledBack } else { TaskStatus::Succeeded }
    }

    fn flow(self) -> anyhow::Result<FlowDocument> {
        let last = self.steps() - 1;
        let steps: Vec<serde_json::Value> = (0..self.steps())
            .map(|index| {
                let fails = self == Self::Saga3 && index == last;
                let mut step = serde_json::json!({
                    "name": format!("step{}", index + 1),
                    "run": if fails { "bench.fail" } else { "bench.noop" },
                });
                if self == Self::Saga3 {
                    step["rollback"] = "bench.noop".into();
                }
                step
            })
            .collect();
        let mut flow = serde_json::json!({"flow": self.as_str(), "steps": steps});
        if self == Self::Exclusive {
            flow["exclusive"] = "bench".into();
        }
        Ok(serde_json::from_value(flow)?)
    }
}

/// Measures `workload` with `n` tasks.
pub(crate) async fn run(workload: Workload, n: u64, setting: Setting) -> anyhow::Result<Measured> {
    let mut site = Site::start(setting).await?;
    let clients = site.entrances().iter().map(|url| site.client(url)).collect::<Result<Vec<_>, _>>()?;
    let client = clients[0].clone();
    // They would be counted with those of this run.
    let any = TaskFilter { limit: Some(1), brief: true, ..TaskFilter::default() };
    let is_empty = client.tasks(&any).await?.items.is_empty();
    ensure!(is_empty, "the store already has tasks: use an empty one");
    client.apply_flow(workload.as_str(), &workload.flow()?).await?;
    let server_rss_idle_mb = site.server_rss_mb()?;
    let counts_before = StoreCounts::of(&site).await?;
    let cpu_before = (site.cpu_ms()?, cpu_ms(std::process::id())?);
    let started = Instant::now();
    let (latencies, accepted) = match workload {
        Workload::Noop | Workload::Chain3 | Workload::Saga3 | Workload::Exclusive => {
            (submit_all(&clients, workload, n).await?, None)
        }
        Workload::Bulk => {
            let latencies = submit_batches(&client, workload, n).await?;
            (latencies, Some(started.elapsed()))
        }
        Workload::Latency | Workload::Chain3Latency => (one_by_one(&client, workload, n).await?, None),
    };
    wait_until_idle(&client, workload, &mut site).await?;
    let finished = started.elapsed();
    let server_rss_mb = site.server_rss_mb()?;
    let counts_after = StoreCounts::of(&site).await?;
    let cpu_after = (site.cpu_ms()?, cpu_ms(std::process::id())?);
    wait_until_counted(&client, workload, n).await?;
    site.stop().await?;

    let per_task = |before: f64, after: f64| (after - before) / count(n);
    let (cpu_ms_server, cpu_ms_worker, cpu_ms_client) = (
        per_task(cpu_before.0.0, cpu_after.0.0),
        per_task(cpu_before.0.1, cpu_after.0.1),
        per_task(cpu_before.1, cpu_after.1),
    );
    let seconds = accepted.unwrap_or(finished).as_secs_f64();
    Ok(Measured {
        workload: workload.as_str(),
        n,
        seconds,
        per_s: count(n) / seconds,
        finished_per_s: accepted.map(|_| count(n) / finished.as_secs_f64()),
        p50_ms: latencies.percentile(0.50),
        p99_ms: latencies.percentile(0.99),
        cpu_ms_per_task: cpu_ms_server + cpu_ms_worker + cpu_ms_client,
        cpu_ms_server,
        cpu_ms_worker,
        cpu_ms_client,
        server_rss_mb,
        server_rss_idle_mb,
        // One transition accepts the task, and one follows each report.
        round_trips_per_transition: counts_before
            .round_trips
            .zip(counts_after.round_trips)
            .map(|(before, after)| (after - before) / (count(n) * count(1 + workload.reports()))),
        conflicts: counts_after.conflicts - counts_before.conflicts,
    })
}

/// A count as a number to divide with.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]
fn count(n: u64) -> f64 {
    n as f64
}

fn task(workload: Workload) -> anyhow::Result<SubmitTask> {
    // The time of sending: the worker returns how long the task took to reach it.
    let params = serde_json::value::to_raw_value(&serde_json::json!({"sent_us": measure::wall_us()}))?;
    Ok(SubmitTask { flow: workload.as_str().to_owned(), params: Some(params), ..SubmitTask::default() })
}

/// Submits tasks one by one, to the servers in turn, with many in flight. Returns the latencies of the
/// submits.
async fn submit_all(clients: &[Client], workload: Workload, n: u64) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::default();
    let mut submits = stream::iter(clients.iter().cycle().zip(0..n))
        .map(|(client, _)| async move {
            let started = Instant::now();
            client.submit(&task(workload)?).await?;
            anyhow::Ok(started.elapsed())
        })
        .buffer_unordered(IN_FLIGHT);
    while let Some(latency) = submits.next().await {
        latencies.add(latency?);
    }
    Ok(latencies)
}

/// Submits in batches. Returns the latencies of the batches.
async fn submit_batches(client: &Client, workload: Workload, n: u64) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::default();
    let mut left = n;
    while left > 0 {
        let size = left.min(BATCH);
        left -= size;
        let tasks = (0..size)
            .map(|_| Ok(serde_json::value::to_raw_value(&task(workload)?)?))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let started = Instant::now();
        let answer = client.submit_batch(&SubmitBatch { tasks }).await?;
        latencies.add(started.elapsed());
        let refused = answer.results.iter().find(|result| result.id.is_none());
        ensure!(refused.is_none(), "a task of a batch was refused: {refused:?}");
    }
    Ok(latencies)
}

/// Runs one task at a time to its end. Returns the pickup latencies for one step, and the latencies of whole
/// tasks for three.
async fn one_by_one(client: &Client, workload: Workload, n: u64) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::default();
    for _ in 0..n {
        let started = Instant::now();
        let task = client.submit_and_wait(&task(workload)?, STALLED_AFTER).await?;
        ensure!(task.status == workload.ending(), "task {} is {}", task.id, task.status.as_str());
        latencies.add(match workload {
            Workload::Latency => picked_up_after(&task)?,
            _ => started.elapsed(),
        });
    }
    Ok(latencies)
}

/// The time from submit to pickup, as the worker has measured it.
fn picked_up_after(task: &Task) -> anyhow::Result<Duration> {
    #[derive(serde::Deserialize)]
    struct PickedUp {
        picked_up_us: u64,
    }
    let result = task.result.as_ref().context("the task has no result")?;
    let picked_up: PickedUp = serde_json::from_str(result.get())?;
    Ok(Duration::from_micros(picked_up.picked_up_us))
}

/// The number of attempts that are ready or running, and of tasks that have or await their exclusive queue.
async fn open(client: &Client, workload: Workload) -> anyhow::Result<u64> {
    let attempts: u64 = client.queues().await?.items.iter().map(|queue| queue.ready + queue.running).sum();
    if workload != Workload::Exclusive {
        return Ok(attempts);
    }
    let queues = client.locks().await?.items;
    Ok(attempts + queues.iter().map(|queue| queue.waiting + u64::from(queue.holder.is_some())).sum::<u64>())
}

/// Waits until no attempt is ready or running, and no task waits.
async fn wait_until_idle(client: &Client, workload: Workload, site: &mut Site) -> anyhow::Result<()> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let begun = Instant::now();
        let open = open(client, workload).await?;
        let took = begun.elapsed();
        if open == 0 {
            return Ok(());
        }
        if open != last {
            (last, moved) = (open, Instant::now());
        }
        if moved.elapsed() > LOOK_AFTER {
            site.check()?;
        }
        ensure!(moved.elapsed() < STALLED_AFTER, "{open} attempts are open and nothing moves");
        tokio::time::sleep((took * PAUSE_FACTOR).clamp(PAUSES[0], PAUSES[1])).await;
    }
}

/// Counts the tasks that ended with the expected status. Between two steps a task is briefly in no queue, so
/// a count that is too low is repeated.
async fn wait_until_counted(client: &Client, workload: Workload, n: u64) -> anyhow::Result<()> {
    const TRIES_MAX: usize = 100;
    let mut ended = 0;
    for _ in 0..TRIES_MAX {
        ended = count_ended(client, workload).await?;
        if ended == n {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("{n} tasks were accepted, but only {ended} ended with the expected status")
}

async fn count_ended(client: &Client, workload: Workload) -> anyhow::Result<u64> {
    let mut filter =
        TaskFilter { status: vec![workload.ending()], limit: Some(1000), ..TaskFilter::default() };
    let mut ended = 0;
    loop {
        let page = client.tasks(&filter).await?;
        ended += page.items.len() as u64;
        match page.next {
            Some(next) => filter.cursor = Some(next),
            None => return Ok(ended),
        }
    }
}
