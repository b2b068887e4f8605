//! The story of the demo: three tasks and their ends.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use jiff::Timestamp;
use windlass_api::{SubmitTask, Task, TaskStatus};
use windlass_client::Client;

use super::instances::Instances;
use super::progress::Progress;
use super::site::Site;

const FLOW: &str = "create_instance";

/// The interval at which a task is read: fast enough for a reader of the output.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The time limit for each part of the demo.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of data files of an instance, and the number at which the worker is killed.
const DATA_FILES: usize = 10;
const DATA_FILES_AT_KILL: usize = 5;

/// Runs the whole story. Fails if a task does not end as expected.
pub(super) async fn tell(site: &mut Site) -> anyhow::Result<()> {
    let folder = site.folder().to_owned();
    let instances = Instances::of(&folder);
    say(&format!(
        "Windlass runs tasks of several steps to their end, or rolls them back. This demo creates database instances\n\
         in three steps: check the machine, make the instance, deduct what it needs from a ledger.\n\
         All of it is real and happens in {}\n",
        folder.display()
    ))?;
    let server = site.start_server().await?;
    say(&format!("Started a server at {server}"))?;
    let pid = site.start_worker("worker-1", &server)?;
    say(&format!("Started worker-1, process {pid}, for the commands in modules/"))?;
    site.run(&["flow", "apply", "flow.yaml", "--server", &server]).await?;
    say("Ran `windlass flow apply flow.yaml`\n")?;

    let mut story = Story { client: Client::new(&server)?, site, instances, server };
    let succeeded = story.one_succeeds().await?;
    let rolled_back = story.one_is_rolled_back().await?;
    let resumed = story.one_loses_its_worker().await?;
    story.where_to_look([&succeeded, &rolled_back, &resumed])
}

struct Story<'a> {
    client: Client,
    site: &'a mut Site,
    instances: Instances<'a>,
    server: String,
}

impl Story<'_> {
    async fn one_succeeds(&mut self) -> anyhow::Result<Task> {
        say("1. A task that succeeds: an instance with 500 MB of the ledger's 1000 MB of storage")?;
        let task = self.start("orders", 500, 0).await?;
        let task = self.follow(task, &mut Progress::default()).await?;
        ensure!(task.status == TaskStatus::Succeeded, "it should have succeeded");
        let path = self.instances.path("orders");
        ensure!(path.join("my.cnf").is_file(), "there should be an instance at {}", path.display());
        ensure!(self.instances.storage_left()? == 500, "the ledger should have 500 MB left");
        say(&format!("  On the disk: {}, and the ledger has 500 MB left.\n", path.display()))?;
        Ok(task)
    }

    async fn one_is_rolled_back(&mut self) -> anyhow::Result<Task> {
        say(
            "2. A task that fails at its third step: 600 MB would fit the machine, but not what the ledger has left",
        )?;
        let before = self.instances.names()?;
        let task = self.start("reports", 600, 0).await?;
        let task = self.follow(task, &mut Progress::default()).await?;
        ensure!(task.status == TaskStatus::RolledBack, "it should have been rolled back");
        ensure!(self.instances.names()? == before, "something of the instance was left behind");
        ensure!(self.instances.storage_left()? == 500, "the ledger should have 500 MB left, as before");
        say(
            "  On the disk: nothing of it is left, the ledger has 500 MB left as before, and `events` says why.\n",
        )?;
        Ok(task)
    }

    async fn one_loses_its_worker(&mut self) -> anyhow::Result<Task> {
        say("3. A task whose worker is killed: making this instance takes 4 seconds")?;
        let task = self.start("archive", 300, 4).await?;
        let mut progress = Progress::default();
        let start = Instant::now();
        while self.instances.data_files("archive") < DATA_FILES_AT_KILL {
            ensure!(start.elapsed() < PATIENCE, "the second step does not get on");
            self.look(&task, &mut progress).await?;
        }
        self.site.kill("worker-1").await?;
        let killed = Instant::now();
        let files = self.instances.data_files("archive");
        say(&format!(
            "  {:>6.2} s  killed worker-1 with SIGKILL; {files} of {DATA_FILES} data files are there",
            since_accepted(&task)
        ))?;
        ensure!(files < DATA_FILES, "the worker was killed too late");
        let pid = self.site.start_worker("worker-2", &self.server)?;
        say(&format!("  {:>6.2} s  started worker-2, process {pid}", since_accepted(&task)))?;
        while self
            .client
            .task(&task.id)
            .await?
            .steps
            .iter()
            .all(|step| step.worker.as_deref() != Some("worker-2"))
        {
            ensure!(killed.elapsed() < PATIENCE, "worker-2 gets nothing to do");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let handed_out = killed.elapsed();
        let task = self.follow(task, &mut progress).await?;
        ensure!(task.status == TaskStatus::Succeeded, "it should have succeeded in spite of that");
        ensure!(self.instances.data_files("archive") == DATA_FILES, "the instance should be complete");
        let entries = self.instances.entries(&task.id)?;
        ensure!(entries.len() == 1, "the ledger should have one entry for it: {entries:?}");
        ensure!(self.instances.storage_left()? == 200, "the ledger should have 200 MB left");
        let init = task.steps.iter().find(|step| step.name == "init").context("there is no step init")?;
        say(&format!(
            "  The step was handed out again {:.1} s after the kill. In {} attempts it was done once: worker-2 found\n  \
             {files} data files and wrote the others, and the ledger has one entry for the task and 200 MB left.\n",
            handed_out.as_secs_f64(),
            init.attempts
        ))?;
        Ok(task)
    }

    async fn start(&self, name: &str, storage: u32, slow: u32) -> anyhow::Result<Task> {
        let params = serde_json::json!({
            "dir": self.site.folder(), "name": name, "Cpu": 4, "Memory": 8, "Storage": storage, "slow": slow,
        });
        let slowly = if slow > 0 { format!(" -p slow={slow}") } else { String::new() };
        say(&format!(
            "  $ windlass task start {FLOW} -p dir=… -p name={name} -p Cpu=4 -p Memory=8 -p Storage={storage}{slowly}"
        ))?;
        let submit = SubmitTask {
            flow: FLOW.to_owned(),
            params: Some(serde_json::value::to_raw_value(&params)?),
            labels: [("demo".to_owned(), name.to_owned())].into(),
            ..SubmitTask::default()
        };
        Ok(self.client.submit(&submit).await?)
    }

    /// Reports the progress of a task until it has ended.
    async fn follow(&mut self, mut task: Task, progress: &mut Progress) -> anyhow::Result<Task> {
        let start = Instant::now();
        while !task.status.is_ended() {
            ensure!(task.status != TaskStatus::Stuck, "the task is stuck: {:?}", task.message);
            ensure!(start.elapsed() < PATIENCE, "the task has not ended after {PATIENCE:?}");
            task = self.look(&task, progress).await?;
        }
        say(&format!("  {:>6.2} s  the task has {}", since_start(&task), words(task.status)))?;
        Ok(task)
    }

    /// Reads the task after a short pause and reports its progress.
    async fn look(&mut self, task: &Task, progress: &mut Progress) -> anyhow::Result<Task> {
        self.site.check()?;
        tokio::time::sleep(LOOK_INTERVAL).await;
        let task = self.client.task(&task.id).await?;
        for line in progress.news(&task, Timestamp::now()) {
            say(&line)?;
        }
        Ok(task)
    }

    fn where_to_look(&self, tasks: [&Task; 3]) -> anyhow::Result<()> {
        let [_, rolled_back, resumed] = tasks.map(|task| &task.id);
        let program = self.site.program().display();
        let folder = self.site.folder().display();
        say(&format!(
            "Look around in {folder}
  ledger, events            what was deducted, and the failure that was reported
  instances/                the instances: a configuration and data files each
  flow.yaml, modules/       the flow and its commands, small shell scripts to begin with
  windlass.db, *.log        the server's store, and the logs of the processes

Go on with a server and a worker of your own:
  cd {folder}
  {program} dev --modules modules
and in another terminal:
  {program} task list
  {program} task show {rolled_back}
  {program} task logs {resumed}
  {program} task start {FLOW} -p dir={folder} -p Cpu=1 -p Memory=8 -p Storage=100 --wait"
        ))
    }
}

fn words(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Succeeded => "succeeded",
        TaskStatus::RolledBack => "failed and was rolled back",
        other => other.as_str(),
    }
}

fn since_accepted(task: &Task) -> f64 {
    Timestamp::now().duration_since(task.created_at).as_secs_f64()
}

fn since_start(task: &Task) -> f64 {
    task.ended_at.unwrap_or_else(Timestamp::now).duration_since(task.created_at).as_secs_f64()
}

/// Prints a line and flushes it: the demo is read while it runs.
fn say(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()?;
    Ok(())
}
