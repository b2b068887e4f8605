//! The servers and the workers of a benchmark, as processes of their own on a fresh store.

use std::{
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time,
};
use windlass_client::Client;

use super::{
    balancer,
    measure::{cpu_ms, is_alive, rss_mb},
    worker::{BROKER_VARIABLE, MODULE, ONE_WAY, WORKER_COMMAND, results_of},
};

/// How long a process may take to be ready or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Attempts at once, of all workers together.
const SLOTS: usize = 256;

/// What the processes of a benchmark work with.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// URL of the store; nothing = a new file.
    pub(crate) store: Option<String>,
    /// How many servers there are, and as many workers.
    pub(crate) servers: usize,
    /// Workers and the client reach the servers through a load balancer alone; else each worker has a server of its own.
    pub(crate) balanced: bool,
    /// URL of the broker on which the steps go out; nothing = the server hands them out.
    pub(crate) broker: Option<String>,
    /// Workers answer over the broker.
    pub(crate) one_way: bool,
}

/// The processes. They are killed when this is dropped.
pub(super) struct Processes {
    servers: Vec<Child>,
    /// One at each server.
    workers: Vec<Child>,
    urls: Vec<String>,
    /// The load balancer and its address.
    balancer: Option<(Child, String)>,
    dir: PathBuf,
}

impl Processes {
    /// Starts servers, and a worker at each that serves `bench.*`.
    pub(super) async fn start(setting: Setting) -> anyhow::Result<Self> {
        let Setting { store, servers, balanced, broker, one_way } = setting;
        let dir = private_dir().context("cannot make a folder for the benchmark's store")?;
        let store = store.unwrap_or_else(|| format!("sqlite:{}", dir.join("bench.db").display()));
        let program = std::env::current_exe()?;
        let queue = format!("windlass-bench-{}", std::process::id());
        let config = broker.as_deref().map(|url| configure(&dir, url, &queue)).transpose()?;
        let mut processes =
            Self { servers: Vec::new(), workers: Vec::new(), urls: Vec::new(), balancer: None, dir };
        for _ in 0..servers {
            let (server, url) = start_server(&program, &store, config.as_deref()).await?;
            processes.servers.push(server);
            processes.urls.push(url);
        }
        if balanced {
            processes.balancer = Some(balancer::start(&processes.dir, &processes.urls).await?);
        }
        let entrances = processes.entrances().to_vec();
        for url in entrances.iter().cycle().take(servers) {
            let mut worker = Command::new(&program);
            worker.args([WORKER_COMMAND, url, &(SLOTS / servers).to_string()]).kill_on_drop(true);
            if let Some(broker) = &broker {
                // Everybody on the machine sees arguments, and a URL may have a password in it.
                worker.env(BROKER_VARIABLE, broker);
                worker.args([queue.as_str(), if one_way { ONE_WAY } else { "" }]);
            }
            processes.workers.push(worker.spawn().context("cannot start the worker")?);
        }
        if broker.is_none() {
            // On a broker steps wait for workers.
            processes.wait_for_workers().await?;
        }
        Ok(processes)
    }

    async fn wait_for_workers(&self) -> anyhow::Result<()> {
        let client = Client::new(&self.urls[0])?;
        let connected = async {
            while client.workers().await?.items.len() < self.workers.len() {
                time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        time::timeout(PATIENCE, connected).await.context("the workers do not connect")?
    }

    /// Where workers and clients call: the load balancer, or the servers.
    pub(super) fn entrances(&self) -> &[String] {
        self.balancer.as_ref().map_or(&self.urls, |(_, url)| std::slice::from_ref(url))
    }

    /// The addresses of the servers.
    pub(super) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Fails when one of them has ended by itself, and has said why.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for (what, children) in [("server", &self.servers), ("worker", &self.workers)] {
            for child in children {
                ensure!(
                    is_alive(child.id().unwrap_or(0))?,
                    "the {what} has ended, for the reason that it gave"
                );
            }
        }
        Ok(())
    }

    /// CPU time that all servers, and all workers, have used in milliseconds.
    pub(super) fn cpu_ms(&self) -> anyhow::Result<(f64, f64)> {
        let all = |children: &[Child]| {
            children.iter().map(|child| cpu_ms(child.id().unwrap_or(0))).sum::<anyhow::Result<f64>>()
        };
        Ok((all(&self.servers)?, all(&self.workers)?))
    }

    /// Memory of all servers.
    pub(super) fn server_rss_mb(&self) -> anyhow::Result<f64> {
        self.servers.iter().map(|server| rss_mb(server.id().unwrap_or(0))).sum()
    }

    /// Ends all by SIGTERM and deletes the store.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for child in self.workers.iter_mut().chain(&mut self.servers) {
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

/// Makes a folder whose name nobody knows before, and that is nobody else's to read: the configuration has the broker's URL.
fn private_dir() -> anyhow::Result<PathBuf> {
    let mut chance = [0; 8];
    getrandom::fill(&mut chance).context("the system gives no random bytes")?;
    let dir = std::env::temp_dir().join(format!("windlass-bench-{:016x}", u64::from_ne_bytes(chance)));
    // One that is there already is refused.
    std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
    Ok(dir)
}

/// Writes a configuration by which the steps go out on a broker. Gives its file.
fn configure(dir: &Path, broker: &str, queue: &str) -> anyhow::Result<PathBuf> {
    let results = results_of(queue);
    let section = serde_json::json!({
        "queues": { MODULE: { "broker": broker, "queue": queue, "results": results } }
    });
    let path = dir.join("windlass.toml");
    std::fs::write(&path, toml::to_string(&section)?).context("cannot write the configuration")?;
    Ok(path)
}

/// Starts a server, and gives its address once it listens.
async fn start_server(program: &Path, store: &str, config: Option<&Path>) -> anyhow::Result<(Child, String)> {
    let mut server = Command::new(program);
    server.args(["server", "--listen", "127.0.0.1:0"]).env("WINDLASS_SERVER_STORE", store);
    if let Some(config) = config {
        server.arg("--config").arg(config);
    }
    let mut server = server
        .env("WINDLASS_LOG", "warn")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the server")?;
    let stdout = server.stdout.take().context("the server has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let line = time::timeout(PATIENCE, lines.next_line()).await.context("the server does not start")??;
    let line = line.context("the server ended at once")?;
    let url = line.strip_prefix("listening on ").context("the server says something else")?.to_owned();
    Ok((server, url))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_folder_is_nobody_elses_and_another_each_time() {
        let (one, other) = (private_dir().unwrap(), private_dir().unwrap());
        assert_ne!(one, other);
        assert_eq!(std::fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o700);
        for dir in [one, other] {
            std::fs::remove_dir(dir).unwrap();
        }
    }
}
