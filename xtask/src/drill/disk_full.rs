//! A full disk: the store is on a small file system of its own. Tasks with large parameters fill it until they are
//! refused, then space is freed. The long form does this twice. The second time, the server is killed while the disk is
//! full.

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

/// Space for the write-ahead log, which takes 64 MiB from the start, for the ballast and for a little data.
const DISK: &str = "176m";

/// Files that are removed to free space. Each is larger than the content of the log at that time, because the log's data
/// must fit into the database before the log has space again.
const BALLAST: [(&str, usize); 2] = [("first", 32 << 20), ("second", 64 << 20)];

/// The size of the parameters of a task that fills the disk.
const PARAMS_BYTES: usize = 400_000;

/// More tasks than fit on the disk.
const TASKS_MAX: usize = 2_000;

/// The number of refusals in a row after which the disk counts as full.
const REFUSALS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let rounds = if length == Length::Long { 5 } else { 1 };
    for round in 1..=rounds {
        let Some(disk) = Disk::mount().await? else {
            println!("disk-full: SKIPPED, a tmpfs cannot be mounted here (it needs root)");
            return Ok(());
        };
        fill(program, &disk, length, round).await?;
        disk.unmount().await?;
    }
    Ok(())
}

async fn fill(program: &Path, disk: &Disk, length: Length, round: usize) -> Result<()> {
    let ballast = BALLAST.map(|(name, _)| disk.path().join(name));
    for (name, bytes) in BALLAST {
        std::fs::write(disk.path().join(name), vec![0; bytes])?;
    }
    let mut fleet = Fleet::new(program, 0)?;
    fleet.set_store(disk.path().join("drill.db"));
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;

    // The server must continue by itself when there is space,
    let mut filled = Filled::default();
    if length == Length::Long {
        fill_up(&client, &mut filled).await?;
        std::fs::remove_file(&ballast[0]).context("cannot free space")?;
        submit_until_accepted(&client, &mut filled).await?;
    }
    // and also after it was killed on the full disk. Meanwhile it must answer queries.
    fill_up(&client, &mut filled).await?;
    read(&client, &filled.accepted).await?;
    fleet.kill_server().await?;
    let started = fleet.start_server_or_refusal().await?;
    let started =
        started.map_err(|said| anyhow::anyhow!("the server does not start on a full disk: {said}"))?;
    read(&client, &filled.accepted).await?;
    std::fs::remove_file(&ballast[1]).context("cannot free space")?;
    let resumed = submit_until_accepted(&client, &mut filled).await?;

    // A worker runs everything that was accepted, and nothing else.
    fleet.start_hand("worker", Hand { sessions: 1, concurrency: 16, lease: Duration::from_secs(10) }).await?;
    let expected = filled.accepted.len();
    let all = tasks::wait_until_succeeded(&client, expected, PATIENCE).await?;
    let effects = fleet.ledger().effects()?.len();
    println!(
        "disk-full round {round}: {expected} tasks accepted, {} refused with {}, \
         the full server returned all of them; after a kill it answered again on the full disk after {} ms, and \
         returned all of them; with free space it continued at submit {resumed}; \
         {} lost, {} too many",
        filled.refused,
        filled.statuses.join(" and "),
        started.as_millis(),
        expected.saturating_sub(effects),
        all.len() - expected,
    );
    let kept = |id: &String| all.iter().any(|task| task.id == *id);
    ensure!(filled.accepted.iter().all(kept), "an accepted task is missing");
    ensure!(all.len() == expected, "{expected} tasks were accepted, but {} exist", all.len());
    ensure!(effects == expected, "{expected} tasks were accepted, but {effects} ran");
    // Little free space does not count as damage.
    let (_, said) = fleet.doctor().await?;
    let damage = |line: &&str| line.starts_with("problem") && !line.contains("left on the file system");
    ensure!(said.lines().all(|line| !damage(&line)), "the doctor finds: {said}");
    fleet.stop().await
}

/// The result of filling the disk.
#[derive(Default)]
struct Filled {
    accepted: Vec<String>,
    refused: usize,
    /// The HTTP statuses of the refusals, without repetitions.
    statuses: Vec<String>,
}

/// Submits large tasks until no more are accepted.
async fn fill_up(client: &Client, filled: &mut Filled) -> Result<()> {
    let (before, mut in_a_row) = (filled.accepted.len(), 0);
    while in_a_row < REFUSALS {
        // A refused task is submitted again under its key: after a 503 the client does not know whether the task was
        // written.
        match client.submit(&large(filled.accepted.len())?).await {
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
            Err(error) => return Err(error).context("the answer on a full disk must be 503 or 507"),
        }
        let taken = filled.accepted.len();
        ensure!(taken < TASKS_MAX, "the disk is not full after {taken} tasks");
    }
    ensure!(filled.accepted.len() > before, "no task was accepted: the drill has no result");
    Ok(())
}

/// Checks that the full server returns all tasks, one by one and in a list.
async fn read(client: &Client, ids: &[String]) -> Result<()> {
    for id in ids {
        let task = client.task(id).await.context("a server on a full disk does not answer")?;
        ensure!(task.status == TaskStatus::Pending, "task {id} is {}", task.status.as_str());
    }
    let listed = tasks::all(client).await.context("a server on a full disk does not list")?.len();
    ensure!(listed == ids.len(), "{} tasks were accepted, but {listed} are listed", ids.len());
    Ok(())
}

fn large(index: usize) -> Result<SubmitTask> {
    let params = serde_json::json!({"ms": 0, "ballast": "x".repeat(PARAMS_BYTES)});
    let params = Some(serde_json::value::to_raw_value(&params)?);
    Ok(SubmitTask { params, ..tasks::task(format!("large-{index}")) })
}

/// Submits the task that was refused last until it is accepted. Returns the number of submits.
async fn submit_until_accepted(client: &Client, filled: &mut Filled) -> Result<usize> {
    let task = large(filled.accepted.len())?;
    let submits = async {
        for submits in 1.. {
            match client.submit(&task).await {
                Ok(task) => {
                    filled.accepted.push(task.id);
                    return Ok(submits);
                }
                Err(error) if error.is_temporary() => time::sleep(Duration::from_millis(50)).await,
                Err(error) => return Err(error.into()),
            }
        }
        anyhow::bail!("it was never accepted")
    };
    time::timeout(PATIENCE, submits).await.context("no submit is accepted although there is free space")?
}

/// A small file system in memory, which is unmounted when this is dropped.
struct Disk {
    dir: Option<tempfile::TempDir>,
}

impl Disk {
    /// Returns nothing if this account may not mount one.
    async fn mount() -> Result<Option<Self>> {
        let dir = tempfile::tempdir().context("cannot create a folder for the drill")?;
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
            // The drill has failed already, and this must not hide why. The server may still be running: unmount lazily.
            let _ = std::process::Command::new("umount").arg("--lazy").arg(dir.path()).status();
        }
    }
}
