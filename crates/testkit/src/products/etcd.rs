//! etcd from Debian's packages `etcd-server` and `etcd-client`. With the setting `https=PORT` it also listens for TLS there.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::ensemble::{Clustered, NODES};
use crate::{
    http,
    port::free_port,
    product::{self, Place, Product, finish},
    server::Server,
};

/// The settings of every server. Settings of a test follow them and win.
const SETTINGS: &[&str] = &["logger=zap", "log-level=warn", "heartbeat-interval=50", "election-timeout=500"];

/// etcd as it is installed on this machine.
#[derive(Debug)]
pub struct EtcdProduct {
    server: PathBuf,
    client: PathBuf,
}

impl Product for EtcdProduct {
    const NAME: &'static str = "etcd";
    const PACKAGE: &'static str = "etcd-server etcd-client";
    const USER: &'static str = "etcd";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    // Version 3.4 has no option that skips the sync to disk.
    const QUICK: &'static [&'static str] = &[];
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
        let find = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        Some(Self { server: find("etcd")?, client: find("etcdctl")? })
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<EtcdProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.server
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let mut command = run(Path::new("mkdir"));
        command.arg("-m700").arg("--").arg(data);
        finish(command).map(drop)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let client = format!("http://127.0.0.1:{}", place.port);
        command.env_remove("ETCDCTL_API").arg("--data-dir").arg(place.data);
        let https = place.settings.iter().find_map(|setting| setting.strip_prefix("https="));
        let encrypted = https.map(|port| format!(",https://127.0.0.1:{port}")).unwrap_or_default();
        let listen = format!("{client}{encrypted}");
        command.args(["--listen-client-urls", &listen, "--advertise-client-urls", &client]);
        if !place.settings.iter().any(|setting| setting.starts_with("initial-cluster=")) {
            let peer = format!("http://127.0.0.1:{}", free_port()?);
            let name = product::name(place.data);
            command.args(["--name", &name, "--initial-cluster", &format!("{name}={peer}")]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        }
        let own = place.settings.iter().map(String::as_str).filter(|setting| !setting.starts_with("https="));
        for setting in SETTINGS.iter().copied().chain(own) {
            command.arg(format!("--{setting}"));
        }
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        let members = http::ask(place.port, "POST", "/v3/cluster/member/list", "{}")?;
        // The server answers before it has registered itself, and before there is a leader.
        let health = http::ask(place.port, "GET", "/health", "")?;
        ensure!(health.contains("\"true\""), "the server has no leader yet: {health}");
        ensure!(members.contains("clientURLs"), "the server has not registered itself yet");
        // Servers of a cluster get their names from the settings of the test.
        let name = place.settings.iter().find_map(|setting| setting.strip_prefix("name="));
        let name = name.map_or_else(|| product::name(place.data), str::to_owned);
        Ok(members.contains(&format!("\"name\":\"{name}\"")))
    }
}

impl Clustered for EtcdProduct {
    fn nodes() -> Result<Vec<Vec<String>>> {
        let ports = (0..NODES).map(|_| free_port()).collect::<Result<Vec<u16>>>()?;
        let peer = |port: &u16| format!("http://127.0.0.1:{port}");
        let name = |port: &u16| format!("w{port}x{}", std::process::id());
        let cluster: Vec<String> =
            ports.iter().map(|port| format!("{}={}", name(port), peer(port))).collect();
        let settings = |port: &u16| {
            let (peer, name) = (peer(port), name(port));
            vec![
                format!("name={name}"),
                format!("listen-peer-urls={peer}"),
                format!("initial-advertise-peer-urls={peer}"),
                format!("initial-cluster={}", cluster.join(",")),
            ]
        };
        Ok(ports.iter().map(settings).collect())
    }
}

impl Server<EtcdProduct> {
    /// Runs `etcdctl` with these arguments and returns its output.
    ///
    /// # Errors
    /// When `etcdctl` fails, with its output.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.product().client);
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints=http://127.0.0.1:{}", self.port()));
        command.args(words).stdin(Stdio::null());
        finish(command)
    }
}
