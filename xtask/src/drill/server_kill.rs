//! Tasks are submitted without pause while the server is killed with SIGKILL and started again.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use tokio::time;
use windlass_client::{Client, Error};

use super::{
    Length,
    fleet::{self, Fleet},
};

const WORK_MS: u64 = 50;
const SLOTS: usize = 10;
const SUBMITTERS: usize = 8;

/// Load between two kills.
const BETWEEN: Duration = Duration::from_secs(2);

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let kills = if length == Length::Long { 60 } else { 3 };
    let mut fleet = Fleet::new(program, WORK_MS)?;
    fleet.start_server().await?;
    fleet.apply_flow().await?;
    fleet.start_worker("first", SLOTS).await?;
    fleet.start_worker("second", SLOTS).await?;
    let client = fleet.client()?;
    let (stop, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut first_answers = Vec::new();
    let submitters = futures_util::future::try_join_all(
        (0..SUBMITTERS).map(|submitter| submit(&client, submitter, &stop, &accepted)),
    );
    let killer = async {
        for _ in 0..kills {
            time::sleep(BETWEEN).await;
            fleet.kill_server().await?;
            first_answers.push(fleet.start_server().await?);
        }
        time::sleep(BETWEEN).await;
        stop.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    tokio::try_join!(submitters, killer)?;

    let accepted = accepted.into_inner();
    fleet::wait_until_succeeded(&client, accepted, Duration::from_secs(120)).await?;
    let counts = fleet::count_tasks(&client).await?;
    let runs = fleet.runs()?;
    let twice = runs.values().filter(|runs| **runs > 1).count();
    let slowest = first_answers.iter().max().copied().unwrap_or_default();
    println!(
        "server-kill: {kills} kills, {accepted} tasks accepted, {} lost, {} too many, {twice} steps run twice, \
         first answer after {} ms at most",
        accepted.saturating_sub(runs.len()),
        runs.len().saturating_sub(accepted),
        slowest.as_millis(),
    );
    ensure!(counts.len() == 1, "tasks in other states: {counts:?}");
    ensure!(runs.len() == accepted, "{accepted} tasks were accepted and {} ran", runs.len());
    ensure!(twice == 0, "{twice} steps ran twice although their workers came back");
    fleet.stop().await
}

/// Submits one task after the other, each under its own key until it is accepted.
async fn submit(client: &Client, submitter: usize, stop: &AtomicBool, accepted: &AtomicUsize) -> Result<()> {
    for index in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let task = fleet::task(format!("{submitter}-{index}"));
        // The server may die before or after it wrote the task: the key makes the second try safe.
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
