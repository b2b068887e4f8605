//! Steps that kill their worker, mixed with good ones. They are held with an alarm after a few deaths, and the good steps
//! are hardly affected.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Result, ensure};
use tokio::time;
use windlass_client::{
    Client,
    api::{SubmitTask, Task, TaskStatus},
};

use super::{Length, fleet::Fleet, hand::Hand, tasks};

/// The flow of the steps that kill their worker.
const POISON: &str = "poison";

/// The number of deaths after which a step is held (`DEATHS_MAX` of the rules).
const DEATHS_MAX: usize = 3;

/// The number of worker processes. Each runs one attempt at a time, so a death affects no other attempt.
const WORKERS: usize = 6;
const LEASE: Duration = Duration::from_secs(10);
const WORK_MS: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(120);

/// The numbers of good and of poisonous tasks, and the time between two submits.
struct Load {
    good: usize,
    poison: usize,
    every: Duration,
}

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let load = match length {
        Length::Short => Load { good: 500, poison: 20, every: Duration::from_millis(5) },
        Length::Long => Load { good: 10_000, poison: 100, every: Duration::from_millis(5) },
    };
    let without = measure(program, &Load { poison: 0, ..load }).await?;
    let with = measure(program, &load).await?;
    println!(
        "poison: {} steps that kill their worker among {} good ones: {} workers died, {} steps held as poisoned \
         with as many alarms after {DEATHS_MAX} deaths each, all good ones succeeded in {} ms (p50) and {} ms (p99); \
         without poison {} ms and {} ms",
        load.poison,
        load.good,
        with.deaths,
        load.poison,
        tasks::percentile(&with.latencies, 50),
        tasks::percentile(&with.latencies, 99),
        tasks::percentile(&without.latencies, 50),
        tasks::percentile(&without.latencies, 99),
    );
    Ok(())
}

struct Measured {
    latencies: Vec<i64>,
    deaths: usize,
}

async fn measure(program: &Path, load: &Load) -> Result<Measured> {
    let mut fleet = Fleet::new(program, WORK_MS)?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    tasks::apply_flow_of(&client, POISON, "drill.poison").await?;
    for worker in 0..WORKERS {
        fleet.start_hand(&format!("worker-{worker}"), hand()).await?;
    }
    let poisoned = submit(&client, load);
    let supervised = supervise(&mut fleet, load.poison * DEATHS_MAX);
    let (poisoned, deaths) = tokio::try_join!(poisoned, supervised)?;
    let good = wait_until_settled(&client, load).await?;
    check(&client, &poisoned, &good).await?;
    let effects = fleet.ledger().effects()?.len();
    ensure!(effects == load.good, "{} good tasks were accepted, but {effects} ran", load.good);
    fleet.stop().await?;
    Ok(Measured { latencies: tasks::latencies(&good), deaths })
}

fn hand() -> Hand {
    Hand { sessions: 1, concurrency: 1, lease: LEASE }
}

/// Submits all tasks at an even pace, with the poisonous ones among the good ones. Returns the ids of the poisonous ones.
async fn submit(client: &Client, load: &Load) -> Result<BTreeSet<String>> {
    let mut poisoned = BTreeSet::new();
    let mut pace = time::interval(load.every);
    for index in 0..load.good {
        pace.tick().await;
        client.submit(&tasks::task_of(format!("good-{index}"), WORK_MS)?).await?;
        if poisoned.len() < (index + 1) * load.poison / load.good {
            let task = SubmitTask { flow: POISON.to_owned(), ..tasks::task(format!("poison-{index}")) };
            poisoned.insert(client.submit(&task).await?.id);
        }
    }
    Ok(poisoned)
}

/// Starts a worker for each one that dies, as a service manager does, until this number have died.
async fn supervise(fleet: &mut Fleet, deaths: usize) -> Result<usize> {
    let mut seen = 0;
    let all = async {
        while seen < deaths {
            for name in fleet.take_dead_workers()? {
                seen += 1;
                fleet.replace_hand(&name, hand())?;
            }
            time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    let ended = time::timeout(PATIENCE * 2, all).await;
    ensure!(ended.is_ok(), "{deaths} deaths of workers were expected, but {seen} occurred");
    Ok(seen)
}

/// Waits until no task waits or runs any more. Returns the good ones.
async fn wait_until_settled(client: &Client, load: &Load) -> Result<Vec<Task>> {
    let settled = |task: &Task| task.status.is_ended() || task.status == TaskStatus::Stuck;
    let all = async {
        loop {
            let all = tasks::all(client).await?;
            if all.len() == load.good + load.poison && all.iter().all(settled) {
                return anyhow::Ok(all);
            }
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    let Ok(all) = time::timeout(PATIENCE, all).await else {
        anyhow::bail!("after {PATIENCE:?} there are still {:?}", tasks::count(&tasks::all(client).await?));
    };
    Ok(all?.into_iter().filter(|task| task.flow == tasks::FLOW).collect())
}

/// Checks that all good tasks succeeded, and that each poisonous one is held after the permitted deaths, with one alarm.
async fn check(client: &Client, poisoned: &BTreeSet<String>, good: &[Task]) -> Result<()> {
    let counts = tasks::count(good);
    ensure!(counts.keys().all(|status| *status == "succeeded"), "good tasks ended as {counts:?}");
    let alarms = client.alarms(false).await?.items;
    let kinds: BTreeSet<&str> = alarms.iter().map(|alarm| alarm.kind.as_str()).collect();
    let named: BTreeSet<String> = alarms.iter().filter_map(|alarm| alarm.task.clone()).collect();
    ensure!(named == *poisoned, "{} alarms were raised for {} steps", named.len(), poisoned.len());
    ensure!(alarms.len() == poisoned.len(), "{} alarms were raised: {kinds:?}", alarms.len());
    for id in poisoned {
        let lost = tasks::count_events(client, [id.as_str()], "step.lost").await?;
        ensure!(lost == DEATHS_MAX, "the poisonous task {id} killed {lost} workers");
        let status = client.task(id).await?.status;
        ensure!(status == TaskStatus::Stuck, "the poisonous task {id} is {}", status.as_str());
    }
    Ok(())
}
