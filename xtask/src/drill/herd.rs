//! Many tasks become due at once while the server is down, and all workers reconnect at once when it runs again.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use tokio::time;
use windlass_client::api::SubmitTask;

use super::{Length, fleet::Fleet, hand::Hand, ledger, tasks};

const LEASE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(300);

/// The number of processes that share the sessions.
const PROCESSES: usize = 2;

/// The time until the tasks are due. All of them are accepted before that.
const AHEAD: Duration = Duration::from_secs(3);

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let (tasks_due, sessions) = if length == Length::Long { (10_000, 500) } else { (2_000, 100) };
    let mut fleet = Fleet::new(program, 0)?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    let hand = Hand { sessions: sessions / PROCESSES, concurrency: 4, lease: LEASE };
    for process in 0..PROCESSES {
        fleet.start_hand(&format!("workers-{process}"), hand).await?;
    }
    let due = jiff::Timestamp::now() + AHEAD;
    let herd: Vec<SubmitTask> = (0..tasks_due)
        .map(|index| SubmitTask { at: Some(due), ..tasks::task(format!("task-{index}")) })
        .collect();
    tasks::submit_all(&client, &herd).await?;
    let early = jiff::Timestamp::now() < due && fleet.ledger().effects()?.is_empty();
    ensure!(early, "the tasks were due before all were accepted: the drill has no result");
    fleet.kill_server().await?;
    while jiff::Timestamp::now() < due {
        time::sleep(Duration::from_millis(10)).await;
    }

    let started = Instant::now();
    let first_answer = fleet.start_server().await?;
    let mut back = None;
    let drained = loop {
        if back.is_none() && client.workers().await?.items.len() == sessions {
            back = Some(started.elapsed());
        }
        let done = fleet.ledger().effects()?.len();
        if done == tasks_due && back.is_some() {
            break started.elapsed();
        }
        ensure!(started.elapsed() < PATIENCE, "after {PATIENCE:?}, {done} of {tasks_due} tasks have run");
        time::sleep(Duration::from_millis(50)).await;
    };
    tasks::wait_until_succeeded(&client, tasks_due, PATIENCE).await?;
    let effects = fleet.ledger().effects()?;
    let twice = ledger::repeated(&effects).len();
    println!(
        "herd: {tasks_due} tasks due at once and {sessions} sessions after a restart: first answer after {} ms, \
         all sessions back after {} ms, all tasks run after {:.1} s ({:.0} tasks/s), {twice} twice",
        first_answer.as_millis(),
        back.unwrap_or_default().as_millis(),
        drained.as_secs_f64(),
        tasks_due as f64 / drained.as_secs_f64(),
    );
    ensure!(twice == 0, "{twice} tasks ran twice");
    fleet.stop().await
}
