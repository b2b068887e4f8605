//! One server and then three on one database behind HAProxy, with round robin and least connections. The workers and the
//! client know only the load balancer. Compares how long the same work takes with one server and with three, in the same
//! run.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use windlass_client::{
    Client, TaskFilter,
    api::{SubmitTask, TaskStatus},
};
use windlass_testkit::{HaProxy, MariaDb, Postgres, Server, SqlProduct};

use super::{Length, fleet::Fleet, hand::Hand, ledger, servers::Database, tasks};

const SERVERS: usize = 3;
const FLOW: &str = "chain";
const STEPS: usize = 3;
const TASKS: usize = 40;
const WORK_MS: u64 = 5;

/// The number of workers, each a process of its own.
const WORKERS: [&str; 2] = ["north", "south"];
const HAND: Hand = Hand { sessions: 1, concurrency: 2, lease: Duration::from_secs(10) };

/// How many times as long three servers may take as one. For an optimised build on a machine that does nothing else.
const FACTOR_MAX: f64 = 1.2;

/// How many times the median a round may take, in the long form. A poll that waits to its end with work beside it takes 2.5 s.
const SLOWEST_MAX: u32 = 3;

/// The limit for all of it. It is less than the time that polls took in sum when they did not learn of free slots.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the drill on this database, or on each. A database that is not installed is reported and skipped.
pub(super) async fn run(program: &Path, length: Length, database: Option<Database>) -> Result<()> {
    if !HaProxy::is_installed()? {
        return Ok(());
    }
    let mut slow = Vec::new();
    if Database::Postgres.is_wanted(database)
        && let Some(server) = Postgres::start()?
    {
        slow.extend(run_on(program, length, &server).await?);
    }
    if Database::Mariadb.is_wanted(database)
        && let Some(server) = MariaDb::start()?
    {
        slow.extend(run_on(program, length, &server).await?);
    }
    ensure!(slow.is_empty(), "{SERVERS} servers took longer than one: {}", slow.join(", "));
    Ok(())
}

/// Returns what took too long.
async fn run_on<P: SqlProduct>(program: &Path, length: Length, server: &Server<P>) -> Result<Vec<String>> {
    let rounds = if length == Length::Long { 40 } else { 1 };
    let alone = measure(program, rounds, server, 1, "roundrobin").await?;
    let mut slow = Vec::new();
    for balance in ["roundrobin", "leastconn"] {
        let together = measure(program, rounds, server, SERVERS, balance).await?;
        let factor = together.as_secs_f64() / alone.as_secs_f64();
        println!(
            "balancer on {}: {TASKS} tasks of {STEPS} steps of {WORK_MS} ms took {} ms behind HAProxy with one server, \
             {} ms with {SERVERS} and {balance} (medians of {rounds}), {factor:.2} times as long; no step ran twice",
            P::NAME,
            alone.as_millis(),
            together.as_millis(),
        );
        if length == Length::Long && factor > FACTOR_MAX {
            slow.push(format!("{factor:.2} times on {} with {balance}", P::NAME));
        }
    }
    Ok(slow)
}

/// How long the tasks take, from the first submit until the last one has succeeded: the median of some rounds.
async fn measure<P: SqlProduct>(
    program: &Path,
    rounds: usize,
    server: &Server<P>,
    servers: usize,
    balance: &str,
) -> Result<Duration> {
    let database = server.database()?;
    let mut fleets = vec![Fleet::on_database(program, WORK_MS, database.url())?];
    fleets[0].start_server().await?;
    while fleets.len() < servers {
        let mut fleet = fleets[0].beside()?;
        fleet.start_server().await?;
        fleets.push(fleet);
    }
    let ports: Vec<u16> = fleets.iter().map(Fleet::port).collect();
    let balancer = HaProxy::balancing(&ports, balance)?.context("HAProxy is not installed")?;
    let mut users = fleets[0].beside()?;
    users.go_to(balancer.port());
    let client = users.client()?;
    apply_flow(&client).await?;
    for worker in WORKERS {
        users.start_hand(worker, HAND).await?;
    }
    let mut took = Vec::new();
    // The first round fills caches and connections, and is not measured.
    for round in 0..=rounds {
        let started = Instant::now();
        for n in 0..TASKS {
            client.submit(&task(format!("{round}-{n}"))?).await?;
        }
        wait_until_done(&client, (round + 1) * TASKS).await?;
        took.push(started.elapsed());
    }
    took.remove(0);
    took.sort_unstable();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    ensure!(
        slowest <= median * SLOWEST_MAX,
        "a round took {slowest:?}, and the median is {median:?}: {took:?}"
    );
    let effects = users.ledger().effects()?;
    let twice = ledger::repeated(&effects);
    ensure!(twice.is_empty(), "{} steps ran twice with their worker alive: {twice:?}", twice.len());
    ensure!(effects.len() == (rounds + 1) * TASKS * STEPS, "{} steps ran", effects.len());
    for fleet in fleets.into_iter().rev().chain([users]).rev() {
        fleet.stop().await?;
    }
    Ok(median)
}

async fn apply_flow(client: &Client) -> Result<()> {
    let step = |n: usize| serde_json::json!({"name": format!("step{n}"), "run": "drill.work"});
    let steps: Vec<_> = (1..=STEPS).map(step).collect();
    client
        .apply_flow(FLOW, &serde_json::from_value(serde_json::json!({"flow": FLOW, "steps": steps}))?)
        .await?;
    Ok(())
}

fn task(key: String) -> Result<SubmitTask> {
    Ok(SubmitTask { flow: FLOW.to_owned(), ..tasks::task_of(key, WORK_MS)? })
}

/// Waits until `n` tasks have succeeded. It queries often, because the time is measured, and asks for one task alone: a
/// list of all tasks every few milliseconds would be more work than the tasks.
async fn wait_until_done(client: &Client, n: usize) -> Result<()> {
    let status = TaskStatus::ALL.into_iter().filter(|status| *status != TaskStatus::Succeeded).collect();
    let others = TaskFilter { status, limit: Some(1), ..TaskFilter::default() };
    let started = Instant::now();
    while !client.tasks(&others).await?.items.is_empty() {
        ensure!(started.elapsed() < PATIENCE, "{n} tasks had to succeed within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let succeeded = tasks::all(client).await?.len();
    ensure!(succeeded == n, "{n} tasks had to succeed, and there are {succeeded}");
    Ok(())
}
