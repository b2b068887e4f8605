//! A worker dies while every commit of its server takes longer than a running server may be silent, or while the server
//! is stopped and continued in turn. Tasks become due all the time. The attempts of the dead worker must be handed out
//! again after a bounded time, and each of them must count one death.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use rustix::process::Signal;
use tokio::{process::Command, time};
use windlass_client::{Client, api::SubmitTask};

use super::{Length, fleet::Fleet, hand::Hand, ledger, tasks};

/// The source of the shim that delays `fsync` and `fdatasync`.
const SHIM: &str = include_str!("slow_disk.c");

/// How long each sync takes. The server counts as unavailable if the lease keeper has no round for more than 400 ms.
const SYNC_MS: u64 = 450;

/// How long the server runs, and then stands still, in turn.
const TURN: Duration = Duration::from_millis(500);

/// The number of attempts that the dead worker has.
const TASKS: usize = 10;

/// Far longer than the drill, so that only the death of the worker ends its attempts.
const STUCK_MS: u64 = 600_000;

/// The number of tasks that become due one after the other.
const DUE: usize = 400;
const DUE_EVERY: Duration = Duration::from_millis(50);

const LEASE: Duration = Duration::from_secs(2);

/// The limit: a lease, two extensions, and commits that take half a second.
const PATIENCE: Duration = Duration::from_secs(45);

/// The cause of the slowness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Disk,
    Turns,
}

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let rounds = if length == Length::Long { 5 } else { 1 };
    for round in 1..=rounds {
        slow(program, Trouble::Disk, round).await?;
        slow(program, Trouble::Turns, round).await?;
    }
    Ok(())
}

async fn slow(program: &Path, trouble: Trouble, round: usize) -> Result<()> {
    let mut fleet = Fleet::new(program, 0)?;
    if trouble == Trouble::Disk {
        let Some(shim) = build_shim(fleet.dir()).await? else {
            println!("slow-disk: SKIPPED, there is no C compiler here to build the shim");
            return Ok(());
        };
        fleet.set_server_variable("LD_PRELOAD", shim);
        fleet.set_server_variable("SLOW_DISK_MS", SYNC_MS.to_string());
    }
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    let hand = Hand { sessions: 1, concurrency: TASKS, lease: LEASE };
    fleet.start_hand("doomed", hand).await?;
    let stuck: Result<Vec<_>> = (0..TASKS).map(|n| tasks::task_of(format!("stuck-{n}"), STUCK_MS)).collect();
    let ids = tasks::submit_all(&client, &stuck?).await?;
    wait_until_begun(&fleet, 1).await?;
    submit_due(&client).await?;
    fleet.kill_worker().await?;
    let killed = Instant::now();
    fleet.start_hand("other", hand).await?;
    let turns = async {
        if trouble == Trouble::Disk {
            return std::future::pending::<Result<()>>().await;
        }
        loop {
            fleet.signal_server(Signal::STOP)?;
            time::sleep(TURN).await;
            fleet.signal_server(Signal::CONT)?;
            time::sleep(TURN).await;
        }
    };
    tokio::select! {
        again = wait_until_begun(&fleet, 2) => again?,
        failed = turns => failed?,
    }
    let took = killed.elapsed();
    fleet.signal_server(Signal::CONT)?;
    let lost = tasks::count_events(&client, ids.iter().map(String::as_str), "step.lost").await?;
    let how = match trouble {
        Trouble::Disk => format!("each sync took {SYNC_MS} ms"),
        Trouble::Turns => format!("the server was stopped and continued every {} ms", TURN.as_millis()),
    };
    println!(
        "slow-disk round {round}: {how}; {TASKS} attempts of a killed worker with a lease of {} s were handed out again after \
         {:.1} s, {lost} deaths counted",
        LEASE.as_secs(),
        took.as_secs_f64()
    );
    ensure!(lost == TASKS, "{lost} deaths were counted, but {TASKS} attempts had a dead worker");
    let twice = fleet.ledger().begun()?.into_iter().filter(|(key, begun)| {
        begun.len() > if ids.iter().any(|id| id == ledger::task_of(key)) { 2 } else { 1 }
    });
    ensure!(twice.count() == 0, "attempts of a live worker were handed out again");
    // The other worker runs the stuck attempts, so the drill does not wait for it.
    fleet.kill_worker().await?;
    fleet.stop().await
}

/// Submits tasks that become due one after the other, so that there is always something to commit.
async fn submit_due(client: &Client) -> Result<()> {
    let begin = Timestamp::now();
    let due = |n: usize| {
        let after = DUE_EVERY * u32::try_from(n)?;
        Ok(SubmitTask { at: Some(begin + after), ..tasks::task_of(format!("due-{n}"), 0)? })
    };
    let due: Result<Vec<SubmitTask>> = (0..DUE).map(due).collect();
    tasks::submit_all(client, &due?).await?;
    Ok(())
}

/// Waits until this number of attempts of each stuck step has begun.
async fn wait_until_begun(fleet: &Fleet, attempts: usize) -> Result<()> {
    let all = async {
        loop {
            let begun = fleet.ledger().begun()?;
            if begun.values().filter(|begun| begun.len() >= attempts).count() >= TASKS {
                return anyhow::Ok(());
            }
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(PATIENCE, all).await.context("attempts of a dead worker are not handed out again")?
}

/// Builds the shim. Returns nothing if there is no C compiler.
async fn build_shim(dir: &Path) -> Result<Option<PathBuf>> {
    let (source, library) = (dir.join("slow_disk.c"), dir.join("slow_disk.so"));
    std::fs::write(&source, SHIM)?;
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    match cc.status().await {
        Ok(status) => {
            ensure!(status.success(), "cc cannot build the shim: {status}");
            Ok(Some(library))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("cannot run cc"),
    }
}
