//! A disk that is full: the store lies on a small file system of its own, which is filled by tasks with large
//! parameters until they are refused; then room is made. Once without and once with a SIGKILL in between.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tokio::{process::Command, time};
use windlass_client::{
    Client, Error,
    api::{SubmitTask, TaskStatus},
};

use super::{Length, fleet::Fleet, hand::Hand, tasks};

/// Room for the write-ahead log, which takes 64 MiB from the start, the ballast and some data.
const DISK: &str = "112m";

/// A file that is removed to make room.
const BALLAST_BYTES: usize = 24 << 20;

/// Parameters of a task that is to fill the disk.
const PARAMS_BYTES: usize = 400_000;

/// More tasks than the disk can take.
const TASKS_MAX: usize = 2_000;

/// Refusals in a row after which the disk counts as full.
const REFUSALS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let rounds = if length == Length::Long { 5 } else { 1 };
    for round in 1..=rounds {
        for killed in [false, true] {
            let Some(disk) = Disk::mount().await? else {
                println!("disk-full: SKIPPED, a tmpfs cannot be mounted here (it needs root)");
                return Ok(());
            };
            fill(program, &disk, round, killed).await?;
            disk.unmount().await?;
        }
    }
    Ok(())
}

async fn fill(program: &Path, disk: &Disk, round: usize, killed: bool) -> Result<()> {
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; BALLAST_BYTES])?;
    let mut fleet = Fleet::new(program, 0)?;
    fleet.set_store(disk.path().join("drill.db"));
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;

    let filled = fill_up(&client).await?;
    // What is refused is refused as a whole; what was accepted is still told.
    ensure!(client.task(&filled.accepted[0]).await?.status == TaskStatus::Pending, "a task has changed");
    let mut restart = "";
    if killed {
        fleet.kill_server().await?;
        restart = match fleet.start_server_or_refusal().await? {
            Ok(_) => ", killed and started again on the full disk",
            Err(said) => {
                ensure!(!said.is_empty(), "the server refuses to start without a word");
                ", killed and refused to start on the full disk"
            }
        };
    }
    std::fs::remove_file(&ballast).context("cannot make room")?;
    if killed && restart.contains("refused") {
        fleet.start_server().await?;
    }
    // It goes on by itself, and a worker does all that was accepted.
    let resumed = submit_until_accepted(&client).await?;
    fleet.start_hand("worker", Hand { sessions: 1, concurrency: 16, lease: Duration::from_secs(10) }).await?;
    let expected = filled.accepted.len() + 1;
    let all = tasks::wait_until_succeeded(&client, expected, PATIENCE).await?;
    let effects = fleet.ledger().effects()?.len();
    println!(
        "disk-full round {round}: {} tasks accepted until the disk was full, then {} refused with {}{restart}; \
         {resumed} submits until it went on with room; {} lost, {} too many",
        filled.accepted.len(),
        filled.refused,
        filled.statuses.join(" and "),
        expected.saturating_sub(effects),
        all.len() - expected,
    );
    let kept = |id: &String| all.iter().any(|task| task.id == *id);
    ensure!(filled.accepted.iter().all(kept), "an accepted task is gone");
    ensure!(all.len() == expected, "{expected} tasks were accepted and there are {}", all.len());
    ensure!(effects == expected, "{expected} tasks were accepted and {effects} ran");
    let (sound, said) = fleet.doctor().await?;
    ensure!(sound, "the doctor finds: {said}");
    fleet.stop().await
}

/// What came of filling the disk.
struct Filled {
    accepted: Vec<String>,
    refused: usize,
    /// The HTTP statuses of the refusals, each once.
    statuses: Vec<String>,
}

/// Submits large tasks until nothing is taken in any more.
async fn fill_up(client: &Client) -> Result<Filled> {
    let mut filled = Filled { accepted: Vec::new(), refused: 0, statuses: Vec::new() };
    let (mut in_a_row, mut index) = (0, 0);
    while in_a_row < REFUSALS {
        match client.submit(&large(index)?).await {
            Ok(task) => {
                filled.accepted.push(task.id);
                in_a_row = 0;
            }
            Err(Error::Refused(problem)) if matches!(problem.status, 503 | 507) => {
                let status = problem.status.to_string();
                if !filled.statuses.contains(&status) {
                    filled.statuses.push(status);
                }
                filled.refused += 1;
                in_a_row += 1;
            }
            Err(error) => return Err(error).context("a full disk is to be answered by 503 or 507"),
        }
        index += 1;
        ensure!(index < TASKS_MAX, "the disk is not full after {index} tasks");
    }
    ensure!(!filled.accepted.is_empty(), "nothing was accepted: the drill shows nothing");
    Ok(filled)
}

fn large(index: usize) -> Result<SubmitTask> {
    let params = serde_json::json!({"ms": 0, "ballast": "x".repeat(PARAMS_BYTES)});
    let params = Some(serde_json::value::to_raw_value(&params)?);
    Ok(SubmitTask { params, ..tasks::task(format!("large-{index}")) })
}

/// Submits one more task until it is taken in. Tells how often that took.
async fn submit_until_accepted(client: &Client) -> Result<usize> {
    let task = tasks::task("resumed".to_owned());
    let submits = async {
        for submits in 1.. {
            match client.submit(&task).await {
                Ok(_) => return Ok(submits),
                Err(error) if error.is_temporary() => time::sleep(Duration::from_millis(50)).await,
                Err(error) => return Err(error.into()),
            }
        }
        anyhow::bail!("it was never accepted")
    };
    time::timeout(PATIENCE, submits).await.context("nothing is accepted though there is room")?
}

/// A small file system in memory. It is unmounted when this is dropped.
struct Disk {
    dir: Option<tempfile::TempDir>,
}

impl Disk {
    /// Nothing where one may not be mounted.
    async fn mount() -> Result<Option<Self>> {
        let dir = tempfile::tempdir().context("cannot make a folder for the drill")?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={DISK}"), "windlass-drill"])
            .arg(dir.path())
            .output()
            .await;
        Ok(mounted.is_ok_and(|output| output.status.success()).then_some(Self { dir: Some(dir) }))
    }

    fn path(&self) -> PathBuf {
        self.dir.as_ref().map(|dir| dir.path().to_owned()).unwrap_or_default()
    }

    async fn unmount(mut self) -> Result<()> {
        let Some(dir) = self.dir.take() else { return Ok(()) };
        let status = Command::new("umount").arg(dir.path()).status().await?;
        ensure!(status.success(), "cannot unmount {}", dir.path().display());
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            // The drill has failed already, and says why. The server may still be about to end: lazily.
            let _ = std::process::Command::new("umount").arg("--lazy").arg(dir.path()).status();
        }
    }
}
