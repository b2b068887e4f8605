//! Tasks of one exclusive queue, three servers on one database behind HAProxy, and three workers that know only HAProxy.
//! With a coordinator, one of the workers leads. Without one, all three work, and the store alone keeps the tasks apart.
//! The working worker and the server that leads the services of the store are killed, stopped, and ended in order. The
//! commands write a ledger. It shows whether two of them ever ran at once, and how long takeovers took.

mod reigns;
mod stage;

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use rustix::process::Signal;
use tokio::time;
use windlass_client::{Client, api::SubmitTask};
use windlass_testkit::{Consul, Etcd, HaProxy, Postgres, Server, SqlProduct, ZooKeeper};

use self::{
    reigns::{Line, Reigns},
    stage::Stage,
};
use super::{Length, tasks};

/// The lease of exclusive workers. It is short to keep the drill short.
const LEASE: &str = "4s";

/// The flow whose tasks have an exclusive queue, which promises an order.
const ORDERED: &str = "ordered";

/// The flow whose tasks have no queue: only the leadership of the workers keeps these tasks apart. A worker that is
/// elected can run them while a stopped worker still has the task of the queue.
const FREE: &str = "free";

/// The number of these tasks that are submitted before a strike at a leading worker.
const FREE_BEFORE: usize = 3;

/// How long a takeover, or the last task, may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the ledger is read during a wait.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How often the database is queried for the leading server during a wait.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What decides which worker works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Coordinator {
    /// No coordinator: the exclusive queue of the store
    Store,
    /// Consul
    Consul,
    /// etcd
    Etcd,
    /// ZooKeeper
    Zookeeper,
}

/// The target of a strike: the working worker, the server that leads, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victims {
    Worker,
    Server,
    Both,
}

/// What happens to the target.
type Strike = (Victims, &'static str, Signal);

const fn kill(victims: Victims) -> Strike {
    (victims, "SIGKILL", Signal::KILL)
}

const fn stop(victims: Victims) -> Strike {
    (victims, "SIGSTOP", Signal::STOP)
}

const fn end(victims: Victims) -> Strike {
    (victims, "SIGTERM", Signal::TERM)
}

/// The strikes of the long form.
const ALL: &[Strike] = &[
    kill(Victims::Worker),
    kill(Victims::Server),
    stop(Victims::Worker),
    stop(Victims::Server),
    kill(Victims::Both),
    stop(Victims::Both),
    end(Victims::Worker),
    end(Victims::Server),
];

/// The amount of work.
struct Plan {
    /// The number of tasks of the exclusive queue.
    ordered: usize,
    /// The strikes, in turn.
    strikes: &'static [Strike],
    /// Whether the strikes repeat until all tasks have ended, with a wait for the queue after each. Otherwise each strike
    /// comes once, and a stopped worker continues when another one works: the queue waits longer, for the lease of its
    /// attempt.
    goes_on: bool,
    /// The minimum time between two strikes.
    every: Duration,
}

impl Plan {
    fn new(length: Length, has_coordinator: bool) -> Self {
        let (ordered, strikes, every): (_, &[_], _) = match (length, has_coordinator) {
            (Length::Long, _) => (1_000, ALL, Duration::from_secs(3)),
            (Length::Short, true) => {
                const SHORT: &[Strike] = &[kill(Victims::Both), stop(Victims::Both), end(Victims::Worker)];
                (40, SHORT, Duration::from_millis(500))
            }
            (Length::Short, false) => {
                // A stopped worker is waited for until its lease ends, which takes 10 s.
                const SHORT: &[Strike] = &[kill(Victims::Both), stop(Victims::Server), end(Victims::Server)];
                (80, SHORT, Duration::from_millis(500))
            }
        };
        Self { ordered, strikes, goes_on: length == Length::Long, every }
    }
}

/// The times after a strike.
#[derive(Debug, Clone, Copy, Default)]
struct Takeover {
    /// Until a command of another worker ran.
    worker: Option<Duration>,
    /// Until another server led.
    server: Option<Duration>,
    /// Until the next command of the queue began.
    begun: Option<Duration>,
}

/// Runs the drill on this coordinator, or on each. A product that is not installed is reported and skipped.
pub(super) async fn run(program: &Path, length: Length, coordinator: Option<Coordinator>) -> Result<()> {
    let Some(postgres) = Postgres::start()? else { return Ok(()) };
    if !HaProxy::is_installed()? {
        return Ok(());
    }
    let url = |scheme: &str, port: u16| format!("{scheme}://127.0.0.1:{port}");
    for product in Coordinator::value_variants() {
        if coordinator.is_some_and(|wanted| wanted != *product) {
            continue;
        }
        // Each of these servers lives as long as its drill.
        match product {
            Coordinator::Store => run_on(program, length, &postgres, None).await?,
            Coordinator::Consul => {
                if let Some(server) = Consul::start()? {
                    run_on(program, length, &postgres, Some(&url("consul", server.port()))).await?;
                }
            }
            Coordinator::Etcd => {
                if let Some(server) = Etcd::start()? {
                    run_on(program, length, &postgres, Some(&url("etcd", server.port()))).await?;
                }
            }
            Coordinator::Zookeeper => {
                if let Some(server) = ZooKeeper::start()? {
                    run_on(program, length, &postgres, Some(&url("zookeeper", server.port()))).await?;
                }
            }
        }
    }
    Ok(())
}

async fn run_on<P: SqlProduct>(
    program: &Path,
    length: Length,
    postgres: &Server<P>,
    coordinator: Option<&str>,
) -> Result<()> {
    let plan = Plan::new(length, coordinator.is_some());
    let database = postgres.database()?;
    let mut stage = Stage::start(program, &database, coordinator).await?;
    let client = stage.client()?;
    apply_flows(&client).await?;
    let mut submitted = submit(&client, ORDERED, plan.ordered).await?;
    let mut reigns = Reigns::new(stage.dir());
    let mut takeovers: BTreeMap<(Victims, &str), Vec<Takeover>> = BTreeMap::new();
    let mut strikes = 0;
    let mut next = time::Instant::now() + plan.every;
    while plan.goes_on || strikes < plan.strikes.len() {
        time::sleep_until(next).await;
        next = time::Instant::now() + plan.every;
        let Some(worker) = reigns.acting(submitted.len()).await? else { break };
        let strike = plan.strikes[strikes % plan.strikes.len()];
        if coordinator.is_some() && strike.0 != Victims::Server {
            submitted.extend(submit(&client, FREE, FREE_BEFORE).await?);
        }
        let takeover = take_over(&mut stage, &mut reigns, &plan, strike, &worker, submitted.len()).await?;
        takeovers.entry((strike.0, strike.1)).or_default().push(takeover);
        strikes += 1;
    }
    tasks::wait_until_succeeded(&client, submitted.len(), PATIENCE).await?;
    let verdict = reigns.verdict(&submitted)?;
    // This also checks that each task has one accepted result.
    let lost = tasks::count_events(&client, verdict.repeated.iter().map(String::as_str), "step.lost").await?;
    let by = coordinator.and_then(|url| url.split(':').next()).unwrap_or("the store alone");
    println!(
        "leader-kill on {by}: {strikes} strikes, {} tasks, 0 lost, {} run twice ({lost} of them given up with their worker), \
         never two at once, order kept{}",
        submitted.len(),
        verdict.repeated.len(),
        takeovers.iter().map(|(strike, takeovers)| said(*strike, takeovers)).collect::<String>()
    );
    ensure!(
        strikes >= plan.strikes.len(),
        "the tasks ended after {strikes} strikes: the drill has no result"
    );
    let seen: Vec<&Takeover> = takeovers.values().flatten().collect();
    let leaders = seen.iter().filter(|takeover| takeover.worker.is_some()).count();
    ensure!(
        coordinator.is_none() || verdict.reigns > leaders,
        "there were {} leaders after {leaders} takeovers",
        verdict.reigns
    );
    let (servers, fence) = (seen.iter().filter(|takeover| takeover.server.is_some()).count(), stage.fence()?);
    ensure!(fence > servers, "the fence of the leading server is {fence} after {servers} takeovers");
    stage.stop().await
}

/// Strikes, waits until others have taken over, and restores all processes.
async fn take_over<P: SqlProduct>(
    stage: &mut Stage<'_, P>,
    reigns: &mut Reigns,
    plan: &Plan,
    (victims, _, signal): Strike,
    worker: &str,
    tasks: usize,
) -> Result<Takeover> {
    let worker = (victims != Victims::Server).then_some(worker);
    let server = if victims == Victims::Worker { None } else { Some(stage.leading_server().await?) };
    if let Some(worker) = worker {
        stage.strike_worker(worker, signal)?;
    }
    if let Some(server) = server {
        stage.strike_server(server, signal)?;
    }
    let mut struck = Instant::now();
    if let Some(worker) = worker.filter(|_| signal != Signal::STOP) {
        stage.replace_worker(worker).await?;
        if signal == Signal::TERM {
            // The worker has finished its commands, which do not count as part of the takeover.
            struck = Instant::now();
        }
    }
    let seen = reigns.lines().len();
    let (mut takeover, mut asked) = (Takeover::default(), struck);
    loop {
        reigns.read()?;
        let after = &reigns.lines()[seen..];
        let now = struck.elapsed();
        if takeover.begun.is_none() && after.iter().any(Line::begins_in_queue) {
            takeover.begun = Some(now);
        }
        if takeover.worker.is_none()
            && let Some(worker) = worker
            && after.iter().any(|line| line.worker != worker)
        {
            takeover.worker = Some(now);
        }
        if takeover.server.is_none()
            && let Some(server) = server
            && asked.elapsed() >= ASK_EVERY
        {
            asked = Instant::now();
            takeover.server = stage.other_leads(server)?.then(|| struck.elapsed());
        }
        // After the last task, no command runs.
        let in_queue = plan.goes_on || worker.is_none();
        let acts = reigns.ended() == tasks || !in_queue || takeover.begun.is_some();
        let leads = reigns.ended() == tasks || worker.is_none() || takeover.worker.is_some();
        if acts && leads && (server.is_none() || takeover.server.is_some()) {
            break;
        }
        ensure!(struck.elapsed() < PATIENCE, "no takeover after {PATIENCE:?}: {takeover:?}");
        time::sleep(LOOK_EVERY).await;
    }
    if let Some(worker) = worker.filter(|_| signal == Signal::STOP) {
        stage.strike_worker(worker, Signal::CONT)?;
    }
    if let Some(server) = server {
        stage.revive_server(server, signal).await?;
    }
    Ok(takeover)
}

/// A line about the takeovers after strikes of one kind.
fn said((victims, word): (Victims, &str), takeovers: &[Takeover]) -> String {
    let times = |of: fn(&Takeover) -> Option<Duration>, what: &str| {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let mut times: Vec<i64> = takeovers.iter().filter_map(of).map(ms).collect();
        times.sort_unstable();
        match times.len() {
            0 => String::new(),
            count => format!(
                ", {what} after {} ms (median of {count}), {} ms (longest)",
                tasks::percentile(&times, 50),
                tasks::percentile(&times, 100)
            ),
        }
    };
    format!(
        "\n  {victims:?} {word}{}{}{}",
        times(|takeover| takeover.worker, "another worker acted"),
        times(|takeover| takeover.server, "another server led"),
        times(|takeover| takeover.begun, "the next command of the queue began")
    )
}

async fn apply_flows(client: &Client) -> Result<()> {
    for (name, queue) in [(FREE, None), (ORDERED, Some("drill"))] {
        let mut flow = serde_json::json!({
            "flow": name, "steps": [{"name": "act", "run": "drill.act", "timeout": "1m"}],
        });
        if let Some(queue) = queue {
            flow["exclusive"] = queue.into();
        }
        client.apply_flow(name, &serde_json::from_value(flow)?).await?;
    }
    Ok(())
}

/// Submits tasks of a flow. Returns their ids with the name of the flow, in order.
async fn submit(client: &Client, flow: &'static str, count: usize) -> Result<Vec<(String, &'static str)>> {
    let task = SubmitTask { flow: flow.to_owned(), ..SubmitTask::default() };
    let ids = tasks::submit_all(client, &vec![task; count]).await?;
    Ok(ids.into_iter().map(|id| (id, flow)).collect())
}
