//! What drills are made of: the program as server and workers, a module that keeps a ledger of its runs.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time,
};
use windlass_client::{Client, TaskFilter, api::SubmitTask};

use super::Length;
use crate::workspace::Workspace;

/// How long a process may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// The flow of the drills: one step, `drill.work`.
pub(super) const FLOW: &str = "drill";

/// Builds the program and tells where it is.
pub(super) fn build(workspace: &Workspace, length: Length) -> Result<PathBuf> {
    let mut command = workspace.command("cargo", &["build", "--package", "windlass"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    if length == Length::Long {
        command.arg("--release");
    }
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the program does not build");
    let artifacts = String::from_utf8(output.stdout)?;
    let path = artifacts
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
        .next_back();
    path.context("cargo names no program")
}

/// A folder with a store, a module and a ledger, and the processes on it. All of it goes when this is dropped.
pub(super) struct Fleet {
    program: PathBuf,
    dir: tempfile::TempDir,
    port: u16,
    server: Option<Child>,
    workers: Vec<Child>,
}

impl Fleet {
    /// A folder and a free port; nothing runs yet.
    pub(super) fn new(program: &Path, work_ms: u64) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a folder for the drill")?;
        let module = dir.path().join("modules/drill");
        std::fs::create_dir_all(&module)?;
        let ledger = dir.path().join("ledger");
        let seconds = format!("{}.{:03}", work_ms / 1000, work_ms % 1000);
        // One short line is appended in one write, so lines of several runs do not mix.
        let script = format!(
            "#!/bin/sh\nsleep {seconds}\nprintf '%s %s\\n' \"$WINDLASS_IDEMPOTENCY_KEY\" \"$WINDLASS_ATTEMPT\" >> '{}'\n",
            ledger.display()
        );
        let command = module.join("work");
        std::fs::write(&command, script)?;
        std::fs::set_permissions(&command, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(Self { program: program.to_owned(), dir, port: free_port()?, server: None, workers: Vec::new() })
    }

    pub(super) fn client(&self) -> Result<Client> {
        Ok(Client::new(&format!("http://127.0.0.1:{}", self.port))?)
    }

    /// Starts the server and waits until it listens. Tells how long the first answer took.
    pub(super) async fn start_server(&mut self) -> Result<Duration> {
        let started = Instant::now();
        let mut server = Command::new(&self.program)
            .args(["server", "--listen", &format!("127.0.0.1:{}", self.port)])
            .args(["--store", &format!("sqlite:{}", self.dir.path().join("drill.db").display())])
            .env("WINDLASS_LOG", "warn")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        let mut lines = BufReader::new(server.stdout.take().context("the server has no output")?).lines();
        let line =
            time::timeout(PATIENCE, lines.next_line()).await.context("the server does not start")??;
        ensure!(line.is_some_and(|line| line.starts_with("listening on")), "the server ended at once");
        self.server = Some(server);
        self.client()?.queues().await?;
        Ok(started.elapsed())
    }

    /// Kills the server with SIGKILL.
    pub(super) async fn kill_server(&mut self) -> Result<()> {
        let mut server = self.server.take().context("no server runs")?;
        server.kill().await.context("cannot kill the server")
    }

    pub(super) async fn start_worker(&mut self, name: &str, concurrency: usize) -> Result<()> {
        let worker = Command::new(&self.program)
            .args(["worker", "--server", &format!("http://127.0.0.1:{}", self.port)])
            .args(["--modules", &self.dir.path().join("modules").display().to_string()])
            .args(["--name", name, "--concurrency", &concurrency.to_string()])
            .env("WINDLASS_LOG", "warn")
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")?;
        self.workers.push(worker);
        let (client, expected) = (self.client()?, self.workers.len());
        let connected = async {
            while client.workers().await?.items.len() < expected {
                time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        time::timeout(PATIENCE, connected).await.context("a worker does not connect")?
    }

    /// Kills the worker that was started first with SIGKILL.
    pub(super) async fn kill_worker(&mut self) -> Result<()> {
        let mut worker = self.workers.remove(0);
        worker.kill().await.context("cannot kill a worker")
    }

    pub(super) async fn apply_flow(&self) -> Result<()> {
        let flow = serde_json::from_value(serde_json::json!({
            "flow": FLOW, "steps": [{"name": "work", "run": "drill.work", "timeout": "1m"}],
        }))?;
        self.client()?.apply_flow(FLOW, &flow).await?;
        Ok(())
    }

    /// How often each step ran to its end, by its idempotency key.
    pub(super) fn runs(&self) -> Result<BTreeMap<String, u32>> {
        let mut runs = BTreeMap::new();
        let path = self.dir.path().join("ledger");
        if !path.exists() {
            return Ok(runs);
        }
        for line in std::fs::read_to_string(path)?.lines() {
            let key = line.split(' ').next().context("an empty line in the ledger")?;
            *runs.entry(key.to_owned()).or_default() += 1;
        }
        Ok(runs)
    }

    /// Ends the workers and the server by SIGTERM and waits for them.
    pub(super) async fn stop(mut self) -> Result<()> {
        let server = self.server.take();
        for mut child in self.workers.drain(..).chain(server) {
            if let Some(pid) =
                child.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?))
            {
                rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
            }
            let status = time::timeout(PATIENCE, child.wait()).await.context("a process does not end")??;
            ensure!(status.success(), "a process ended with {status}");
        }
        Ok(())
    }
}

/// A task of the drill's flow, to be submitted under `key`.
pub(super) fn task(key: String) -> SubmitTask {
    SubmitTask {
        flow: FLOW.to_owned(),
        params: None,
        key: Some(key),
        at: None,
        priority: None,
        labels: BTreeMap::new(),
    }
}

/// Counts tasks by status.
pub(super) async fn count_tasks(client: &Client) -> Result<BTreeMap<&'static str, usize>> {
    let mut counts = BTreeMap::new();
    let mut filter = TaskFilter { limit: Some(1000), ..TaskFilter::default() };
    loop {
        let page = client.tasks(&filter).await?;
        for task in &page.items {
            *counts.entry(task.status.as_str()).or_default() += 1;
        }
        match page.next {
            Some(next) => filter.cursor = Some(next),
            None => return Ok(counts),
        }
    }
}

/// Waits until `n` tasks have succeeded.
pub(super) async fn wait_until_succeeded(client: &Client, n: usize, patience: Duration) -> Result<()> {
    let started = Instant::now();
    loop {
        let counts = count_tasks(client).await?;
        if counts.get("succeeded") == Some(&n) {
            return Ok(());
        }
        ensure!(
            started.elapsed() < patience,
            "{n} tasks were accepted, and after {patience:?} there are {counts:?}"
        );
        time::sleep(Duration::from_millis(100)).await;
    }
}

/// A port that nobody listens on now, below those the system gives out by itself.
fn free_port() -> Result<u16> {
    const TRIES: u16 = 200;
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap_or(0);
    (first..first + TRIES)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .context("no free port for the drill")
}
