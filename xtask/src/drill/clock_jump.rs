//! The server's clock jumps forwards and backwards by an hour (libfaketime), while steps run and tasks wait for their time.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tokio::time;
use windlass_client::{
    Client,
    api::{SubmitTask, TaskStatus},
};

use super::{Length, fleet::Fleet, hand::Hand, ledger, tasks};

/// The number of tasks of each kind.
const TASKS: usize = 20;
const WORK_MS: u64 = 1500;
const LEASE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: i64 = 3600;

/// A flow with a step that waits before it begins.
const DELAYED: &str = "delayed";

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let Some(library) = faketime() else {
        println!("clock-jump: SKIPPED, libfaketime is not installed (apt-get install faketime)");
        return Ok(());
    };
    let rounds = if length == Length::Long { 5 } else { 1 };
    for round in 1..=rounds {
        jump(program, &library, round).await?;
    }
    Ok(())
}

async fn jump(program: &Path, library: &Path, round: usize) -> Result<()> {
    let mut fleet = Fleet::new(program, WORK_MS)?;
    let clock = Clock(fleet.dir().join("clock"));
    clock.set(0)?;
    fleet.set_server_variable("LD_PRELOAD", library);
    fleet.set_server_variable("FAKETIME_TIMESTAMP_FILE", &clock.0);
    fleet.set_server_variable("FAKETIME_NO_CACHE", "1");
    // Leases use the monotonic clock, which a change of the date does not affect.
    fleet.set_server_variable("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    fleet.start_hand("worker", Hand { sessions: 2, concurrency: TASKS * 2, lease: LEASE }).await?;

    let mut ids = submit(&client, "in-half-an-hour", Some(HOUR / 2)).await?;
    let later = submit(&client, "in-two-hours", Some(HOUR * 2)).await?;
    // An hour forwards while these tasks run. Tasks that are due within the hour start, and nothing counts as too late.
    ids.extend(submit(&client, "during-the-jump-forwards", None).await?);
    begun(&fleet, TASKS).await?;
    clock.set(HOUR)?;
    wait_until_succeeded(&client, ids.len()).await?;
    ensure_scheduled(&client, &later).await?;
    // An hour back while these tasks run. The server's own time continues from its latest value.
    ids.extend(submit(&client, "during-the-jump-back", None).await?);
    begun(&fleet, TASKS * 3).await?;
    clock.set(0)?;
    wait_until_succeeded(&client, ids.len()).await?;
    ids.extend(submit(&client, "in-a-moment", Some(1)).await?);
    // A delay of two seconds ends after two seconds, not after an hour.
    ids.extend(submit_delayed(&client, "delayed-while-behind").await?);
    wait_until_succeeded(&client, ids.len()).await?;
    ensure_alarm(&client).await?;
    ensure_scheduled(&client, &later).await?;
    // A start with a clock that is an hour behind the stored time. No task starts a second time.
    clock.set(-HOUR)?;
    fleet.kill_server().await?;
    fleet.start_server().await?;
    ids.extend(submit(&client, "after-a-start-in-the-past", None).await?);
    ids.extend(submit_delayed(&client, "delayed-after-a-start-in-the-past").await?);
    wait_until_succeeded(&client, ids.len()).await?;
    ensure_scheduled(&client, &later).await?;
    clock.set(HOUR * 5 / 2)?;
    ids.extend(later);
    wait_until_succeeded(&client, ids.len()).await?;

    let lost = tasks::count_events(&client, ids.iter().map(String::as_str), "step.lost").await?;
    let retried = tasks::count_events(&client, ids.iter().map(String::as_str), "step.retrying").await?;
    let effects = fleet.ledger().effects()?;
    let twice = ledger::repeated(&effects).len();
    println!(
        "clock-jump round {round}: +1 h, -1 h, a start at -1 h, +2.5 h: {} tasks, {} scheduled ones; {} lost, \
         {twice} twice, {lost} leases lost, {retried} timed out",
        ids.len(),
        TASKS * 3,
        ids.len() - effects.len(),
    );
    ensure!(effects.len() == ids.len(), "{} of {} tasks ran", effects.len(), ids.len());
    ensure!(twice == 0, "{twice} tasks ran twice");
    ensure!(lost == 0 && retried == 0, "{lost} attempts were given up, {retried} tried again");
    fleet.stop().await
}

/// Submits tasks that are due in this number of seconds of real time, or at once.
async fn submit(client: &Client, name: &str, due_in: Option<i64>) -> Result<Vec<String>> {
    let due = due_in.map(|seconds| jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds));
    let tasks: Result<Vec<_>> = (0..TASKS)
        .map(|index| Ok(SubmitTask { at: due, ..tasks::task_of(format!("{name}-{index}"), WORK_MS)? }))
        .collect();
    tasks::submit_all(client, &tasks?).await
}

/// Submits tasks with a step that waits two seconds before it begins.
async fn submit_delayed(client: &Client, name: &str) -> Result<Vec<String>> {
    let flow = serde_json::from_value(serde_json::json!({
        "flow": DELAYED, "steps": [{"name": "work", "run": "drill.work", "delay": "2s"}],
    }))?;
    client.apply_flow(DELAYED, &flow).await?;
    let tasks: Result<Vec<_>> = (0..TASKS)
        .map(|index| {
            Ok(SubmitTask { flow: DELAYED.to_owned(), ..tasks::task_of(format!("{name}-{index}"), WORK_MS)? })
        })
        .collect();
    tasks::submit_all(client, &tasks?).await
}

/// Waits for the alarm about the clock.
async fn ensure_alarm(client: &Client) -> Result<()> {
    let raised = async {
        while !client.alarms(false).await?.items.iter().any(|alarm| alarm.kind == "clock_set_back") {
            time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    time::timeout(PATIENCE, raised).await.context("no alarm reports that the clock was set back")?
}

/// Waits until this number of steps has begun.
async fn begun(fleet: &Fleet, n: usize) -> Result<()> {
    let begun = async {
        while fleet.ledger().begun()?.len() < n {
            time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    time::timeout(PATIENCE, begun).await.context("the steps do not begin")?
}

async fn wait_until_succeeded(client: &Client, n: usize) -> Result<()> {
    tasks::wait_until_succeeded(client, n, PATIENCE).await?;
    Ok(())
}

async fn ensure_scheduled(client: &Client, ids: &[String]) -> Result<()> {
    for id in ids {
        let status = client.task(id).await?.status;
        ensure!(status == TaskStatus::Scheduled, "task {id} is {} before its time", status.as_str());
    }
    Ok(())
}

/// The file from which libfaketime reads the offset.
struct Clock(PathBuf);

impl Clock {
    /// Sets the server's clock ahead by this number of seconds. The file is replaced in one step.
    fn set(&self, seconds: i64) -> Result<()> {
        let next = self.0.with_extension("next");
        fs::write(&next, format!("{seconds:+}\n"))?;
        Ok(fs::rename(&next, &self.0)?)
    }
}

/// The path of the library, if it is installed.
fn faketime() -> Option<PathBuf> {
    const NAME: &str = "faketime/libfaketime.so.1";
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut places = folders.chain(["/usr/lib".into(), "/usr/local/lib".into()]).map(|dir| dir.join(NAME));
    places.find(|path| path.exists())
}
