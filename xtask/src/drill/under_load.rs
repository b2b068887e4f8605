//! Tasks are submitted without pause while the server, or the server and workers, are killed with SIGKILL and started
//! again.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use tokio::time;
use windlass_client::{Client, Error};

use super::{Length, fleet::Fleet, ledger, tasks};

const WORK_MS: u64 = 50;
const SLOTS: usize = 10;
const SUBMITTERS: usize = 8;

/// How long there is load between two kills.
const BETWEEN: Duration = Duration::from_secs(2);

/// In every other round the server dies this much later than the worker: it has seen that the connection was closed, and
/// is about to hand the worker's attempts to others.
const APART: Duration = Duration::from_millis(900);

/// How long a restarted server may take until all tasks have ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// The processes that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victims {
    /// The server. The workers keep running.
    Server,
    /// The server and one of the two workers.
    Both,
}

pub(super) async fn run(program: &Path, length: Length, victims: Victims) -> Result<()> {
    let kills = match (length, victims) {
        (Length::Short, _) => 3,
        (Length::Long, Victims::Server) => 60,
        // Ten minutes in sum.
        (Length::Long, Victims::Both) => 300,
    };
    let mut fleet = Fleet::new(program, WORK_MS)?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    for worker in 0..2 {
        fleet.start_worker(&format!("worker-{worker}"), SLOTS).await?;
    }
    let (stop, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut first_answers = Vec::new();
    let submitters = futures_util::future::try_join_all(
        (0..SUBMITTERS).map(|submitter| submit(&client, submitter, &stop, &accepted)),
    );
    let killer = async {
        for kill in 0..kills {
            time::sleep(BETWEEN).await;
            if victims == Victims::Both {
                fleet.kill_worker().await?;
                time::sleep(if kill % 2 == 0 { Duration::ZERO } else { APART }).await;
            }
            fleet.kill_server().await?;
            first_answers.push(fleet.start_server().await?);
            if victims == Victims::Both {
                fleet.start_worker(&format!("worker-{}", kill + 2), SLOTS).await?;
            }
        }
        time::sleep(BETWEEN).await;
        stop.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    tokio::try_join!(submitters, killer)?;

    let accepted = accepted.into_inner();
    let all = tasks::wait_until_succeeded(&client, accepted, PATIENCE).await?;
    let effects = fleet.ledger().effects()?;
    let twice = ledger::repeated(&effects);
    // This also checks that each task has one accepted result.
    let lost =
        tasks::count_events(&client, twice.iter().map(|key| ledger::task_of(key)), "step.lost").await?;
    let latencies = tasks::latencies(&all);
    let name = if victims == Victims::Server { "server-kill" } else { "both-kill" };
    println!(
        "{name}: {kills} kills, {accepted} tasks accepted, {} lost, {} too many, {} steps run twice \
         ({lost} of them given up with their worker), first answer after {} ms at most, tasks took {} ms (p50), \
         {} ms (p99), {} ms (longest)",
        accepted.saturating_sub(effects.len()),
        effects.len().saturating_sub(accepted),
        twice.len(),
        first_answers.iter().max().copied().unwrap_or_default().as_millis(),
        tasks::percentile(&latencies, 50),
        tasks::percentile(&latencies, 99),
        tasks::percentile(&latencies, 100),
    );
    ensure!(all.len() == accepted, "{accepted} tasks were accepted, but {} exist", all.len());
    ensure!(effects.len() == accepted, "{accepted} tasks were accepted, but {} ran", effects.len());
    match victims {
        Victims::Server => {
            ensure!(twice.is_empty(), "{} steps ran twice although their workers came back", twice.len());
        }
        // Steps that a killed worker had just run and not yet reported run again.
        Victims::Both => ensure!(
            twice.len() <= kills * SLOTS,
            "{} steps ran twice, but the killed workers had at most {}",
            twice.len(),
            kills * SLOTS
        ),
    }
    fleet.stop().await
}

/// Submits one task after the other, each under its own key until it is accepted.
async fn submit(client: &Client, submitter: usize, stop: &AtomicBool, accepted: &AtomicUsize) -> Result<()> {
    for index in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let task = tasks::task(format!("{submitter}-{index}"));
        // The server may die before or after it wrote the task. The key makes the second submit safe.
        while let Err(error) = client.submit(&task).await {
            match error {
                Error::Unreachable { .. } | Error::Malformed { .. } => {
                    time::sleep(Duration::from_millis(20)).await
                }
                Error::Refused(problem) if problem.status == 503 => {
                    time::sleep(Duration::from_millis(20)).await
                }
                refused => return Err(refused.into()),
            }
        }
        accepted.fetch_add(1, Ordering::Relaxed);
        time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
