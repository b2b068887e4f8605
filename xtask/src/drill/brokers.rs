//! The broker that carries the steps of a module dies and comes back, or loses all its data, repeatedly under load. The
//! server and the workers keep running. The workers take their steps from the broker and check each step with the server.
//! Or the broker keeps running, and the server is killed or ended in order. Then the workers know only the broker.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use futures_util::{StreamExt as _, future::try_join_all, stream::FuturesUnordered};
use tokio::time::{self, Instant, MissedTickBehavior};
use windlass_client::{
    Client,
    api::{SubmitTask, Task},
};
use windlass_testkit::{ElasticMq, Kafka, RabbitMq, Redis};

use super::{Length, fleet::Fleet, ledger, tasks};

const SUBMITTERS: usize = 6;

/// The pause between two submits of a submitter.
const SUBMIT_EVERY: Duration = Duration::from_millis(100);

/// The number of a submitter's tasks that have not ended yet. After an accident a hundred or two wait, whatever the
/// broker can do.
const OPEN_MAX: usize = 25;

const WORK_MS: u64 = 20;

const WORKERS: usize = 2;

/// How many commands each worker runs at the same time.
const CONCURRENCY: usize = 4;

/// The queue on the broker.
const QUEUE: &str = "drill-work";

/// How long a broker that was killed stays down.
const AWAY: Duration = Duration::from_secs(1);

/// The pause between the end of one accident and the next one.
const PAUSE: Duration = Duration::from_secs(3);

/// How long a task may take after an accident.
const PATIENCE: Duration = Duration::from_secs(120);

/// A broker product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Broker {
    /// Redis streams
    Redis,
    /// RabbitMQ, quorum queues
    Rabbitmq,
    /// Kafka
    Kafka,
    /// SQS, by ElasticMQ, which keeps everything in memory
    Sqs,
}

/// What happens to the broker or the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accident {
    /// The broker is killed with SIGKILL, and started again with its data on disk.
    Kill,
    /// All messages on the broker are deleted. It keeps running.
    Wipe,
    /// The broker keeps running. The server gets SIGKILL, every other time SIGTERM, and is started again.
    Server,
}

/// A running broker.
struct Running {
    name: &'static str,
    url: String,
    kill: Box<dyn Fn() -> Result<()>>,
    restart: Box<dyn Fn() -> Result<()>>,
    wipe: Box<dyn Fn() -> Result<()>>,
}

/// Runs the drill on this broker, or on each. A broker that is not installed is reported and skipped.
pub(super) async fn run(
    program: &Path,
    length: Length,
    broker: Option<Broker>,
    accident: Accident,
) -> Result<()> {
    // The short form takes only brokers with disks of their own, because each start takes longer than the load.
    let short = [Broker::Redis, Broker::Rabbitmq];
    for product in Broker::value_variants() {
        let is_wanted = match broker {
            Some(broker) => broker == *product,
            None => length == Length::Long || short.contains(product),
        };
        if is_wanted && let Some(running) = start(*product)? {
            run_on(program, length, &running, accident).await?;
        }
    }
    Ok(())
}

fn start(product: Broker) -> Result<Option<Running>> {
    Ok(match product {
        Broker::Redis => Redis::start()?.map(|server| {
            let server = std::rc::Rc::new(server);
            let (kill, restart, wipe) = (server.clone(), server.clone(), server.clone());
            Running {
                name: "Redis",
                url: server.url(),
                kill: Box::new(move || kill.kill()),
                restart: Box::new(move || restart.restart()),
                wipe: Box::new(move || wipe.ask(&["FLUSHALL"]).map(drop)),
            }
        }),
        Broker::Rabbitmq => RabbitMq::start()?.map(|server| {
            let server = std::rc::Rc::new(server);
            let (kill, restart, wipe) = (server.clone(), server.clone(), server.clone());
            Running {
                name: "RabbitMQ",
                url: server.url(),
                kill: Box::new(move || {
                    // Without this, a single server loses the queue itself: see `sync` in the test kit.
                    kill.sync()?;
                    kill.kill()
                }),
                restart: Box::new(move || restart.restart()),
                wipe: Box::new(move || {
                    let queue = format!("rabbit_misc:r(<<\"/\">>, queue, <<\"{QUEUE}\">>)");
                    let delete = format!(
                        "{{ok, Q}} = rabbit_amqqueue:lookup({queue}), \
                         {{ok, _}} = rabbit_amqqueue:delete(Q, false, false, <<\"drill\">>), ok"
                    );
                    wipe.evaluate(&delete).map(drop)
                }),
            }
        }),
        Broker::Kafka => Kafka::start()?.map(|server| {
            let server = std::rc::Rc::new(server);
            let (kill, restart, wipe) = (server.clone(), server.clone(), server.clone());
            Running {
                name: "Kafka",
                url: server.url(),
                kill: Box::new(move || kill.kill()),
                restart: Box::new(move || restart.restart()),
                wipe: Box::new(move || wipe.delete(QUEUE)),
            }
        }),
        Broker::Sqs => ElasticMq::start()?.map(|server| {
            let server = std::rc::Rc::new(server);
            let (kill, restart, wipe) = (server.clone(), server.clone(), server.clone());
            Running {
                name: "SQS (ElasticMQ)",
                url: server.url(),
                kill: Box::new(move || kill.kill()),
                restart: Box::new(move || restart.restart()),
                wipe: Box::new(move || {
                    let port = wipe.port();
                    let queue = format!("http://127.0.0.1:{port}/000000000000/{QUEUE}");
                    wipe.ask(&format!("Action=PurgeQueue&QueueUrl={queue}")).map(drop)
                }),
            }
        }),
    })
}

async fn run_on(program: &Path, length: Length, broker: &Running, accident: Accident) -> Result<()> {
    let accidents = if length == Length::Long { 20 } else { 2 };
    let mut fleet = Fleet::new(program, WORK_MS)?;
    let config = fleet.dir().join("windlass.toml");
    let section = format!("[queues.drill]\nbroker = \"{}\"\nqueue = \"{QUEUE}\"\n", broker.url);
    std::fs::write(&config, section).context("cannot write the configuration")?;
    fleet.set_server_variable("WINDLASS_CONFIG", config.as_os_str());
    // The server warns each time the broker is unavailable.
    fleet.set_server_variable("WINDLASS_LOG", "error");
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    for worker in 0..WORKERS {
        let (name, queue) = (format!("worker-{worker}"), format!("drill={QUEUE}"));
        let over = ["--broker", &broker.url, "--queue", &queue];
        match accident {
            Accident::Server => fleet.start_one_way_worker(&name, CONCURRENCY, &over)?,
            _ => fleet.start_worker_with(&name, CONCURRENCY, &over).await?,
        }
    }
    let (stop, accepted) = (Cell::new(false), RefCell::new(Vec::new()));
    let submitters = (0..SUBMITTERS).map(|submitter| submit(&client, submitter, &stop, &accepted));
    let disturb = async {
        let mut recovered = Vec::new();
        for index in 0..accidents {
            time::sleep(PAUSE).await;
            match accident {
                Accident::Kill => {
                    (broker.kill)()?;
                    time::sleep(AWAY).await;
                    (broker.restart)()?;
                }
                Accident::Wipe => (broker.wipe)()?,
                Accident::Server => {
                    if index % 2 == 0 {
                        fleet.kill_server().await?
                    } else {
                        fleet.stop_server().await?
                    }
                    time::sleep(AWAY).await;
                    fleet.start_server().await?;
                }
            }
            recovered.push(recover(&client, index, &accepted).await?);
        }
        time::sleep(PAUSE).await;
        stop.set(true);
        anyhow::Ok(recovered)
    };
    let (_, mut recovered) = tokio::try_join!(try_join_all(submitters), disturb)?;
    let accepted: BTreeSet<String> = accepted.into_inner().into_iter().collect();
    let all = tasks::wait_until_succeeded(&client, accepted.len(), PATIENCE).await?;
    let latencies = tasks::latencies(&all);
    let known: BTreeSet<String> = all.into_iter().map(|task| task.id).collect();
    // Fails if a step has more than one accepted result.
    tasks::count_events(&client, known.iter().map(String::as_str), "step.succeeded").await?;
    let effects = fleet.ledger().effects()?;
    let ran: BTreeSet<&str> = effects.keys().map(|key| ledger::task_of(key)).collect();
    let twice = ledger::repeated(&effects).len();
    let lost = accepted.iter().filter(|id| !known.contains(*id) || !ran.contains(id.as_str())).count();
    let too_many = known.difference(&accepted).count();
    recovered.sort_unstable();
    println!(
        "{} on {}: {accidents} times, {} tasks accepted, {lost} lost, {too_many} too many, {twice} run twice, one accepted \
         result each; a task that was submitted afterwards had succeeded after {} ms (median) and {} ms (longest); tasks took \
         {} ms (p50), {} ms (longest)",
        accident.name(),
        broker.name,
        accepted.len(),
        recovered.get(recovered.len() / 2).map_or(0, Duration::as_millis),
        recovered.last().map_or(0, Duration::as_millis),
        tasks::percentile(&latencies, 50),
        tasks::percentile(&latencies, 100),
    );
    ensure!(lost == 0, "{lost} accepted tasks are missing or did not run");
    ensure!(too_many == 0, "{too_many} tasks exist whose submits were not answered");
    ensure!(twice == 0, "{twice} attempts ran twice although no worker died");
    fleet.stop().await
}

impl Accident {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "broker-kill",
            Self::Wipe => "broker-wipe",
            Self::Server => "broker-server-kill",
        }
    }
}

/// Submits a task and waits for its end, to measure how long this takes after an accident.
async fn recover(client: &Client, index: usize, accepted: &RefCell<Vec<String>>) -> Result<Duration> {
    let began = Instant::now();
    let task = submit_one(client, &tasks::task_of(format!("after-{index}"), WORK_MS)?).await?;
    accepted.borrow_mut().push(task.id.clone());
    succeed(client, task.id).await?;
    Ok(began.elapsed())
}

/// Submits a task under its key until the server answers.
async fn submit_one(client: &Client, task: &SubmitTask) -> Result<Task> {
    let submitted = time::timeout(PATIENCE, insist(|| client.submit(task))).await;
    submitted.with_context(|| format!("no submit was accepted within {PATIENCE:?}"))
}

/// Queries until there is an answer, because the server may be unavailable.
async fn insist<T, E>(ask: impl AsyncFn() -> Result<T, E>) -> T {
    loop {
        if let Ok(answer) = ask().await {
            return answer;
        }
        time::sleep(Duration::from_millis(50)).await;
    }
}

async fn succeed(client: &Client, id: String) -> Result<()> {
    let ended = time::timeout(PATIENCE, insist(|| client.wait(&id))).await;
    let ended = ended.with_context(|| format!("task {id} has not ended within {PATIENCE:?}"))?;
    ensure!(ended.status.as_str() == "succeeded", "task {id} is {}", ended.status.as_str());
    Ok(())
}

/// Submits one task after the other, and waits until each has succeeded.
async fn submit(
    client: &Client,
    submitter: usize,
    stop: &Cell<bool>,
    accepted: &RefCell<Vec<String>>,
) -> Result<()> {
    let mut open = FuturesUnordered::new();
    let mut ticks = time::interval(SUBMIT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for index in 0.. {
        loop {
            tokio::select! {
                Some(succeeded) = open.next() => succeeded?,
                _ = ticks.tick(), if open.len() < OPEN_MAX && !stop.get() => break,
                else => return Ok(()),
            }
        }
        let task = tasks::task_of(format!("{submitter}-{index}"), WORK_MS)?;
        let submitted = submit_one(client, &task).await?;
        accepted.borrow_mut().push(submitted.id.clone());
        open.push(succeed(client, submitted.id));
    }
    Ok(())
}
