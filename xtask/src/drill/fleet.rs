//! The parts of drills: the program as server and workers, with a store and a ledger of its own.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time,
};
use windlass_client::Client;
use windlass_testkit::free_port;

use super::{
    hand::{self, Hand},
    ledger::Ledger,
};

/// How long a process may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a store, a module and a ledger, and the processes on it. All of them end when this is dropped.
pub(super) struct Fleet {
    program: PathBuf,
    dir: Arc<tempfile::TempDir>,
    store: PathBuf,
    database: Option<String>,
    port: u16,
    server_environment: Vec<(&'static str, OsString)>,
    server: Option<Child>,
    workers: Vec<(String, Child)>,
}

impl Fleet {
    /// Creates the folder and chooses a free port; nothing runs yet. The module's command takes `work_ms`.
    pub(super) fn new(program: &Path, work_ms: u64) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot create a folder for the drill")?;
        let module = dir.path().join("modules/drill");
        std::fs::create_dir_all(&module)?;
        let command = module.join("work");
        std::fs::write(&command, Ledger::in_folder(dir.path()).script(work_ms))?;
        std::fs::set_permissions(&command, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(Self {
            program: program.to_owned(),
            store: dir.path().join("drill.db"),
            dir: Arc::new(dir),
            database: None,
            port: free_port()?,
            server_environment: Vec::new(),
            server: None,
            workers: Vec::new(),
        })
    }

    /// The same, with the database at this URL as the store.
    pub(super) fn on_database(program: &Path, work_ms: u64, url: String) -> Result<Self> {
        Ok(Self { database: Some(url), ..Self::new(program, work_ms)? })
    }

    /// One more server with the same store, module and ledger, on another port and with workers of its own.
    pub(super) fn beside(&self) -> Result<Self> {
        Ok(Self {
            program: self.program.clone(),
            dir: self.dir.clone(),
            store: self.store.clone(),
            database: self.database.clone(),
            port: free_port()?,
            server_environment: self.server_environment.clone(),
            server: None,
            workers: Vec::new(),
        })
    }

    /// The path of the folder.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The path of the server's store file.
    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    /// Uses this file as the store from the next start on.
    pub(super) fn set_store(&mut self, store: PathBuf) {
        self.store = store;
    }

    /// Sets this variable for the server from the next start on.
    pub(super) fn set_server_variable(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.server_environment.push((name, value.into()));
    }

    /// The ledger that the commands wrote.
    pub(super) fn ledger(&self) -> Ledger {
        Ledger::in_folder(self.dir.path())
    }

    fn store_url(&self) -> String {
        self.database.clone().unwrap_or_else(|| format!("sqlite:{}", self.store.display()))
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// If no server of this fleet runs, its workers and clients use this port instead, such as that of a load balancer.
    pub(super) fn go_to(&mut self, port: u16) {
        self.port = port;
    }

    pub(super) fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.address())?)
    }

    /// Starts the server and waits until it listens. Returns how long the first answer took.
    pub(super) async fn start_server(&mut self) -> Result<Duration> {
        self.launch_server(Stdio::inherit()).await?.context("the server ended at once")
    }

    /// The same for a server that may refuse to start. Returns its message if it does.
    pub(super) async fn start_server_or_refusal(&mut self) -> Result<Result<Duration, String>> {
        let said = self.dir.path().join("server.log");
        let started = self.launch_server(std::fs::File::create(&said)?.into()).await?;
        Ok(match started {
            Some(took) => Ok(took),
            None => Err(String::from_utf8_lossy(&std::fs::read(&said)?).trim().to_owned()),
        })
    }

    /// Returns nothing if the server ended before it listened.
    async fn launch_server(&mut self, stderr: Stdio) -> Result<Option<Duration>> {
        let started = Instant::now();
        let mut server = Command::new(&self.program)
            .args(["server", "--listen", &format!("127.0.0.1:{}", self.port)])
            .args(["--store", &self.store_url()])
            .env("WINDLASS_LOG", "warn")
            .envs(self.server_environment.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        let mut lines = BufReader::new(server.stdout.take().context("the server has no output")?).lines();
        let line =
            time::timeout(PATIENCE, lines.next_line()).await.context("the server does not start")??;
        if !line.is_some_and(|line| line.starts_with("listening on")) {
            server.wait().await?;
            return Ok(None);
        }
        self.server = Some(server);
        self.client()?.queues().await?;
        Ok(Some(started.elapsed()))
    }

    /// Kills the server with SIGKILL.
    pub(super) async fn kill_server(&mut self) -> Result<()> {
        let mut server = self.server.take().context("no server runs")?;
        server.kill().await.context("cannot kill the server")
    }

    /// Waits until the server has ended.
    pub(super) async fn reap_server(&mut self) -> Result<()> {
        let mut server = self.server.take().context("no server runs")?;
        time::timeout(PATIENCE, server.wait()).await.context("the server does not end")??;
        Ok(())
    }

    /// Ends the server with SIGTERM.
    pub(super) async fn stop_server(&mut self) -> Result<()> {
        end(self.server.take().context("no server runs")?).await
    }

    /// Sends the server a signal.
    pub(super) fn signal_server(&self, signal: Signal) -> Result<()> {
        send(self.server.as_ref().context("no server runs")?, signal)
    }

    /// Starts a `windlass worker` for the module and waits until it is connected.
    pub(super) async fn start_worker(&mut self, name: &str, concurrency: usize) -> Result<()> {
        self.start_worker_with(name, concurrency, &[]).await
    }

    /// The same with more arguments.
    pub(super) async fn start_worker_with(
        &mut self,
        name: &str,
        concurrency: usize,
        arguments: &[&str],
    ) -> Result<()> {
        self.launch_worker(name, concurrency, "warn", arguments)?;
        self.wait_until_connected(name, 1).await
    }

    /// The same without waiting, because the worker may have nothing to do at the server yet. Its commands get its name
    /// in the variable `DRILL_WORKER`.
    pub(super) fn launch_worker(
        &mut self,
        name: &str,
        concurrency: usize,
        log: &str,
        arguments: &[&str],
    ) -> Result<()> {
        let worker = Command::new(&self.program)
            .args(["worker", "--server", &self.address()])
            .args(["--modules", &self.dir.path().join("modules").display().to_string()])
            .args(["--name", name, "--concurrency", &concurrency.to_string()])
            .args(arguments)
            .env("WINDLASS_LOG", log)
            .env("DRILL_WORKER", name)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")?;
        self.workers.push((name.to_owned(), worker));
        Ok(())
    }

    /// Starts a worker that knows only a broker, and no server.
    pub(super) fn start_one_way_worker(
        &mut self,
        name: &str,
        concurrency: usize,
        arguments: &[&str],
    ) -> Result<()> {
        let worker = Command::new(&self.program)
            .arg("worker")
            .args(["--modules", &self.dir.path().join("modules").display().to_string()])
            .args(["--name", name, "--concurrency", &concurrency.to_string()])
            .args(arguments)
            .args(["--results", "windlass-results"])
            .env("WINDLASS_LOG", "warn")
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")?;
        self.workers.push((name.to_owned(), worker));
        Ok(())
    }

    /// Starts a process of the drill's own workers and waits until all of its sessions are connected.
    pub(super) async fn start_hand(&mut self, name: &str, hand: Hand) -> Result<()> {
        self.replace_hand(name, hand)?;
        self.wait_until_connected(name, hand.sessions).await
    }

    /// Starts a process of the drill's own workers.
    pub(super) fn replace_hand(&mut self, name: &str, hand: Hand) -> Result<()> {
        let child = Command::new(std::env::current_exe().context("cannot find this program")?)
            .arg(hand::COMMAND)
            .args(hand.arguments(&self.address(), name, self.dir.path()))
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")?;
        self.workers.push((name.to_owned(), child));
        Ok(())
    }

    async fn wait_until_connected(&self, name: &str, sessions: usize) -> Result<()> {
        let client = self.client()?;
        let connected = async {
            loop {
                let workers = client.workers().await?.items;
                if workers.iter().filter(|worker| worker.name == name).count() >= sessions {
                    return anyhow::Ok(());
                }
                time::sleep(Duration::from_millis(10)).await;
            }
        };
        time::timeout(PATIENCE, connected).await.context("a worker does not connect")?
    }

    /// Kills the worker that was started first with SIGKILL.
    pub(super) async fn kill_worker(&mut self) -> Result<()> {
        ensure!(!self.workers.is_empty(), "no worker runs");
        let (_, mut worker) = self.workers.remove(0);
        worker.kill().await.context("cannot kill a worker")
    }

    /// Sends a signal to the worker with this name.
    pub(super) fn signal_worker(&self, name: &str, signal: Signal) -> Result<()> {
        match self.workers.iter().find(|(known, _)| known == name) {
            Some((_, worker)) => send(worker, signal),
            None => bail!("no worker has the name {name}"),
        }
    }

    /// Waits until the worker with this name has ended.
    pub(super) async fn reap_worker(&mut self, name: &str) -> Result<()> {
        let index = self.workers.iter().position(|(known, _)| known == name);
        let (_, mut worker) = self.workers.remove(index.context("no worker has that name")?);
        time::timeout(PATIENCE, worker.wait()).await.context("a worker does not end")??;
        Ok(())
    }

    /// Removes the workers that have ended, and returns their names.
    pub(super) fn take_dead_workers(&mut self) -> Result<Vec<String>> {
        let mut dead = Vec::new();
        for index in (0..self.workers.len()).rev() {
            if self.workers[index].1.try_wait()?.is_some() {
                dead.push(self.workers.remove(index).0);
            }
        }
        Ok(dead)
    }

    /// Runs `windlass doctor` on the store. Returns whether it finds no problem, and its output.
    pub(super) async fn doctor(&self) -> Result<(bool, String)> {
        let output =
            Command::new(&self.program).args(["doctor", "--store", &self.store_url()]).output().await?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).trim().to_owned()))
    }

    /// Ends the workers and the server with SIGTERM and waits for them.
    pub(super) async fn stop(mut self) -> Result<()> {
        let server = self.server.take();
        for child in self.workers.drain(..).map(|(_, child)| child).chain(server) {
            end(child).await?;
        }
        Ok(())
    }
}

fn send(child: &Child, signal: Signal) -> Result<()> {
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    Ok(rustix::process::kill_process(pid.context("the process has ended")?, signal)?)
}

async fn end(mut child: Child) -> Result<()> {
    send(&child, Signal::TERM)?;
    let status = time::timeout(PATIENCE, child.wait()).await.context("a process does not end")??;
    ensure!(status.success(), "a process ended with {status}");
    Ok(())
}
