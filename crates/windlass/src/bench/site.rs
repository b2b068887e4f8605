//! The servers and the workers of a benchmark, as processes of their own on a fresh store.

use std::{
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tokio::{process::Command, time};
use windlass_client::Client;

use super::{
    balancer,
    measure::{cpu_ms, rss_mb},
    worker::{BROKER_VARIABLE, MODULE, ONE_WAY, WORKER_COMMAND, results_of},
};
use crate::supervisor::Supervisor;

/// What the names of servers and of workers begin with.
const SERVER: &str = "server";
const WORKER: &str = "worker";

/// How long workers may take to connect.
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

/// The servers, the workers, and a load balancer if there is one. They are killed when this is dropped.
pub(super) struct Site {
    processes: Supervisor,
    workers: usize,
    urls: Vec<String>,
    /// The address of the load balancer.
    balancer: Option<String>,
    dir: PathBuf,
}

impl Site {
    /// Starts servers, and a worker at each that serves `bench.*`.
    pub(super) async fn start(setting: Setting) -> anyhow::Result<Self> {
        let Setting { store, servers, balanced, broker, one_way } = setting;
        let dir = private_dir().context("cannot make a folder for the benchmark's store")?;
        let store = store.unwrap_or_else(|| format!("sqlite:{}", dir.join("bench.db").display()));
        let program = std::env::current_exe()?;
        let queue = format!("windlass-bench-{}", std::process::id());
        let config = broker.as_deref().map(|url| configure(&dir, url, &queue)).transpose()?;
        let processes = Supervisor::new(&program)?;
        let mut site = Self { processes, workers: servers, urls: Vec::new(), balancer: None, dir };
        for number in 1..=servers {
            let mut server = Command::new(&program);
            server.args(["server", "--listen", "127.0.0.1:0"]).env("WINDLASS_SERVER_STORE", &store);
            if let Some(config) = &config {
                server.arg("--config").arg(config);
            }
            server.env("WINDLASS_LOG", "warn");
            let url = site.processes.start_server(&format!("{SERVER} {number}"), server, None).await?;
            site.urls.push(url);
        }
        if balanced {
            site.balancer = Some(balancer::start(&mut site.processes, &site.dir, &site.urls).await?);
        }
        let entrances = site.entrances().to_vec();
        for (number, url) in entrances.iter().cycle().take(servers).enumerate() {
            let mut worker = Command::new(&program);
            worker.args([WORKER_COMMAND, url, &(SLOTS / servers).to_string()]);
            if let Some(broker) = &broker {
                // Everybody on the machine sees arguments, and a URL may have a password in it.
                worker.env(BROKER_VARIABLE, broker);
                worker.args([queue.as_str(), if one_way { ONE_WAY } else { "" }]);
            }
            site.processes.start(&format!("{WORKER} {}", number + 1), worker, None)?;
        }
        if broker.is_none() {
            // On a broker steps wait for workers.
            site.wait_for_workers().await?;
        }
        Ok(site)
    }

    async fn wait_for_workers(&self) -> anyhow::Result<()> {
        let client = Client::new(&self.urls[0])?;
        let connected = async {
            while client.workers().await?.items.len() < self.workers {
                time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        time::timeout(PATIENCE, connected).await.context("the workers do not connect")?
    }

    /// Where workers and clients call: the load balancer, or the servers.
    pub(super) fn entrances(&self) -> &[String] {
        self.balancer.as_ref().map_or(&self.urls, std::slice::from_ref)
    }

    /// The addresses of the servers.
    pub(super) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Fails when one of the processes has ended by itself.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.processes.check()
    }

    /// CPU time that all servers, and all workers, have used in milliseconds.
    pub(super) fn cpu_ms(&self) -> anyhow::Result<(f64, f64)> {
        let all = |kind| self.processes.pids(kind).into_iter().map(cpu_ms).sum::<anyhow::Result<f64>>();
        Ok((all(SERVER)?, all(WORKER)?))
    }

    /// Memory of all servers.
    pub(super) fn server_rss_mb(&self) -> anyhow::Result<f64> {
        self.processes.pids(SERVER).into_iter().map(rss_mb).sum()
    }

    /// Ends all by SIGTERM and deletes the store.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for (name, status) in self.processes.end().await {
            let is_ours = name.starts_with(SERVER) || name.starts_with(WORKER);
            let status = status.with_context(|| format!("{name} did not end"))?;
            ensure!(!is_ours || status.success(), "{name} ended with {status}");
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
