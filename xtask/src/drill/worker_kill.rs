//! 400 tasks of 100 ms on two workers; one is killed with SIGKILL when half of them are done.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time;

use super::{Length, fleet::Fleet, ledger, tasks};

const TASKS: usize = 400;
const WORK_MS: u64 = 100;
const SLOTS: usize = 10;

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let rounds = if length == Length::Long { 10 } else { 1 };
    for round in 1..=rounds {
        kill_one(program, round).await?;
    }
    Ok(())
}

async fn kill_one(program: &Path, round: usize) -> Result<()> {
    let mut fleet = Fleet::new(program, WORK_MS)?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    fleet.start_worker("first", SLOTS).await?;
    fleet.start_worker("second", SLOTS).await?;
    let ids: Vec<String> = stream::iter(0..TASKS)
        .map(|index| {
            let client = &client;
            async move { anyhow::Ok(client.submit(&tasks::task(format!("task-{index}"))).await?.id) }
        })
        .buffered(32)
        .try_collect()
        .await?;
    while fleet.ledger().effects()?.len() < TASKS / 2 {
        time::sleep(Duration::from_millis(5)).await;
    }
    let killed_at = jiff::Timestamp::now();
    let killed = Instant::now();
    fleet.kill_worker().await?;
    tasks::wait_until_succeeded(&client, TASKS, Duration::from_secs(60)).await?;
    let finished = killed.elapsed();

    let mut again_ms = Vec::new();
    for id in &ids {
        let events = client.task_events(id, 0).await?.items;
        if let Some(lost) = events.iter().position(|event| event.kind == "step.lost") {
            let started = events[lost..].iter().find(|event| event.kind == "step.started");
            let again = started.map(|event| event.at.as_millisecond() - killed_at.as_millisecond());
            again_ms.push(again.unwrap_or(i64::MAX));
        }
    }
    again_ms.sort_unstable();
    let runs = fleet.ledger().effects()?;
    let twice = ledger::repeated(&runs).len();
    println!(
        "worker-kill round {round}: {TASKS} tasks, {} lost, {} attempts handed out again after {} to {} ms, \
         {twice} run twice, all finished {:.1} s after the kill",
        TASKS - runs.len(),
        again_ms.len(),
        again_ms.first().unwrap_or(&0),
        again_ms.last().unwrap_or(&0),
        finished.as_secs_f64(),
    );
    ensure!(runs.len() == TASKS, "{} tasks never ran to their end", TASKS - runs.len());
    ensure!(!again_ms.is_empty(), "the killed worker had no attempts: the drill has no result");
    ensure!(twice <= SLOTS, "{twice} steps ran twice, but the killed worker had at most {SLOTS}");
    fleet.stop().await
}
