//! The servers and workers of a benchmark, as separate processes on a fresh store.

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
    security::Entry,
    worker::{BROKER_VARIABLE, MODULE, ONE_WAY, WORKER_COMMAND, results_of},
};
use crate::supervisor::Supervisor;

/// Name prefixes of servers and of workers.
const SERVER: &str = "server";
const WORKER: &str = "worker";

/// The most time that workers may take to connect.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most attempts in flight, over all workers.
const SLOTS: usize = 256;

/// The setup of a benchmark.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// URL of the store; none = a new file.
    pub(crate) store: Option<String>,
    /// The number of servers, which is also the number of workers.
    pub(crate) servers: usize,
    /// Whether workers and the client connect only through a load balancer. Otherwise each worker has its own
    /// server.
    pub(crate) balanced: bool,
    /// URL of the broker that carries the steps; none = workers claim them from the server.
    pub(crate) broker: Option<String>,
    /// Whether workers send results over the broker.
    pub(crate) one_way: bool,
    /// Whether servers ask for access tokens and encrypt connections.
    pub(crate) secure: bool,
}

/// The servers, the workers, and the load balancer, if any. Dropping this kills them.
pub(super) struct Site {
    processes: Supervisor,
    workers: usize,
    urls: Vec<String>,
    /// The address of the load balancer, if there is one.
    balancer: Option<String>,
    dir: PathBuf,
    entry: Entry,
}

impl Site {
    /// Starts servers, and for each one a worker that serves `bench.*`.
    pub(super) async fn start(setting: Setting) -> anyhow::Result<Self> {
        let Setting { store, servers, balanced, broker, one_way, secure } = setting;
        let dir = private_dir().context("cannot make a folder for the benchmark's store")?;
        let store = store.unwrap_or_else(|| format!("sqlite:{}", dir.join("bench.db").display()));
        let program = std::env::current_exe()?;
        let queue = format!("windlass-bench-{}", std::process::id());
        let config = broker.as_deref().map(|url| configure(&dir, url, &queue)).transpose()?;
        let processes = Supervisor::new(&program)?;
        let entry = if secure { Entry::secured(&dir).await? } else { Entry::default() };
        let mut site = Self { processes, workers: servers, urls: Vec::new(), balancer: None, dir, entry };
        for number in 1..=servers {
            let mut server = Command::new(&program);
            server.args(["server", "--listen", "127.0.0.1:0"]).env("WINDLASS_SERVER_STORE", &store);
            site.entry.arrange(&mut server, &site.dir);
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
            site.entry.pass_to(&mut worker);
            if let Some(broker) = &broker {
                // All users of the machine can see arguments, and the URL may contain a password.
                worker.env(BROKER_VARIABLE, broker);
                worker.args([queue.as_str(), if one_way { ONE_WAY } else { "" }]);
            }
            site.processes.start(&format!("{WORKER} {}", number + 1), worker, None)?;
        }
        if broker.is_none() {
            // With a broker, steps wait there for workers.
            site.wait_for_workers().await?;
        }
        Ok(site)
    }

    async fn wait_for_workers(&self) -> anyhow::Result<()> {
        let client = self.client(&self.urls[0])?;
        let connected = async {
            while client.workers().await?.items.len() < self.workers {
                time::sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        time::timeout(PATIENCE, connected).await.context("the workers do not connect")?
    }

    /// A client of the server, or the balancer, at this address.
    pub(super) fn client(&self, url: &str) -> anyhow::Result<Client> {
        self.entry.client(url)
    }

    /// The addresses for workers and clients: the load balancer, or the servers.
    pub(super) fn entrances(&self) -> &[String] {
        self.balancer.as_ref().map_or(&self.urls, std::slice::from_ref)
    }

    /// The addresses of the servers.
    pub(super) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Fails if a process has ended by itself.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.processes.check()
    }

    /// CPU time in milliseconds of all servers, and of all workers.
    pub(super) fn cpu_ms(&self) -> anyhow::Result<(f64, f64)> {
        let all = |kind| self.processes.pids(kind).into_iter().map(cpu_ms).sum::<anyhow::Result<f64>>();
        Ok((all(SERVER)?, all(WORKER)?))
    }

    /// Resident memory of all servers, in MiB.
    pub(super) fn server_rss_mb(&self) -> anyhow::Result<f64> {
        self.processes.pids(SERVER).into_iter().map(rss_mb).sum()
    }

    /// Ends all processes with SIGTERM and deletes the store.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for (name, status) in self.processes.end().await {
            let is_ours = name.starts_with(SERVER) || name.starts_with(WORKER);
            let status = status.with_context(|| format!("{name} did not end"))?;
            ensure!(!is_ours || status.success(), "{name} ended with {status}");
        }
        std::fs::remove_dir_all(&self.dir).context("cannot delete the benchmark's store")
    }
}

/// Creates a folder with an unpredictable name that only this user can read: the configuration contains the
/// broker's URL.
fn private_dir() -> anyhow::Result<PathBuf> {
    let mut chance = [0; 8];
    getrandom::fill(&mut chance).context("cannot get random bytes from the operating system")?;
    let dir = std::env::temp_dir().join(format!("windlass-bench-{:016x}", u64::from_ne_bytes(chance)));
    // An existing folder is refused.
    std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
    Ok(dir)
}

/// Writes a configuration that publishes the steps to a broker. Returns its path.
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
