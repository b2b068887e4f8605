//! The server and the worker of a benchmark, as processes of their own on a fresh store.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time,
};
use windlass_client::Client;

use super::{measure::rss_mb, worker::WORKER_COMMAND};

/// How long a process may take to be ready or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The processes. They are killed when this is dropped.
pub(super) struct Processes {
    server: Child,
    worker: Child,
    url: String,
    dir: PathBuf,
}

impl Processes {
    /// Starts a server on a store, or on a new file, and a worker that serves `bench.*`.
    pub(super) async fn start(store: Option<String>) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("windlass-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).context("cannot make a folder for the benchmark's store")?;
        let store = store.unwrap_or_else(|| format!("sqlite:{}", dir.join("bench.db").display()));
        let program = std::env::current_exe()?;
        let mut server = Command::new(&program)
            .args(["server", "--listen", "127.0.0.1:0", "--store", &store])
            .env("WINDLASS_LOG", "warn")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        let stdout = server.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line =
            time::timeout(PATIENCE, lines.next_line()).await.context("the server does not start")??;
        let line = line.context("the server ended at once")?;
        let url = line.strip_prefix("listening on ").context("the server says something else")?.to_owned();
        let worker = Command::new(&program)
            .args([WORKER_COMMAND, &url])
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the worker")?;
        let processes = Self { server, worker, url, dir };
        processes.wait_for_worker().await?;
        Ok(processes)
    }

    async fn wait_for_worker(&self) -> anyhow::Result<()> {
        let client = Client::new(&self.url)?;
        let connected = async {
            while client.workers().await?.items.is_empty() {
                time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        time::timeout(PATIENCE, connected).await.context("the worker does not connect")?
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn server(&self) -> u32 {
        self.server.id().unwrap_or(0)
    }

    pub(super) fn worker(&self) -> u32 {
        self.worker.id().unwrap_or(0)
    }

    pub(super) fn server_rss_mb(&self) -> anyhow::Result<f64> {
        rss_mb(self.server())
    }

    /// Ends both by SIGTERM and deletes the store.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for child in [&mut self.worker, &mut self.server] {
            let pid = child.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
            if let Some(pid) = pid {
                rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
            }
            let status = time::timeout(PATIENCE, child.wait()).await.context("a process does not end")??;
            ensure!(status.success(), "a process ended with {status}");
        }
        std::fs::remove_dir_all(&self.dir).context("cannot delete the benchmark's store")
    }
}
