//! The processes of the drill: servers on one database, HAProxy in front of them, and workers.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use tokio::time;
use windlass_client::Client;
use windlass_testkit::{Database, HaProxy, SqlProduct};

use super::{ASK_EVERY, LEASE, PATIENCE, reigns};
use crate::drill::fleet::Fleet;

const SERVERS: usize = 3;
const WORKERS: usize = 3;

/// The name that workers campaign for.
const NAME: &str = "drill/leader";

/// Selects the address of the server that leads timekeeping.
const LEADING: &str = "SELECT r.address FROM windlass_service s JOIN windlass_server r ON r.id = s.holder
    WHERE s.name = 'timekeeping'";

/// Selects the number of times that timekeeping has got another leader.
const FENCE: &str = "SELECT fence FROM windlass_service WHERE name = 'timekeeping'";

/// Servers, the load balancer, and workers that know only the load balancer.
pub(super) struct Stage<'d, P: SqlProduct> {
    database: &'d Database<'d, P>,
    servers: Vec<Fleet>,
    // It lives as long as the processes behind it.
    _balancer: HaProxy,
    users: Fleet,
    /// The arguments of exclusive workers.
    campaign: Vec<String>,
    /// The number of workers that were started.
    started: usize,
}

impl<'d, P: SqlProduct> Stage<'d, P> {
    /// Starts everything. With the URL of a coordinator, only one of the workers works.
    pub(super) async fn start(
        program: &Path,
        database: &'d Database<'d, P>,
        coordinator: Option<&str>,
    ) -> Result<Self> {
        let mut servers = vec![Fleet::on_database(program, 0, database.url())?];
        servers[0].start_server().await?;
        while servers.len() < SERVERS {
            let mut server = servers[0].beside()?;
            server.start_server().await?;
            servers.push(server);
        }
        let ports: Vec<u16> = servers.iter().map(Fleet::port).collect();
        let balancer = HaProxy::balancing(&ports, "leastconn")?.context("HAProxy is not installed")?;
        let mut users = servers[0].beside()?;
        users.go_to(balancer.port());
        let command = users.dir().join("modules/drill/act");
        fs::write(&command, reigns::script(users.dir()))?;
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755))?;
        let campaign = |url| ["--exclusive", NAME, "--exclusive-lease", LEASE, "--coordinator", url];
        let campaign = coordinator.map(|url| campaign(url).map(str::to_owned).to_vec()).unwrap_or_default();
        let mut stage = Self { database, servers, _balancer: balancer, users, campaign, started: 0 };
        for _ in 0..WORKERS {
            stage.launch_worker()?;
        }
        Ok(stage)
    }

    pub(super) fn dir(&self) -> &Path {
        self.users.dir()
    }

    /// A client that knows only the load balancer.
    pub(super) fn client(&self) -> Result<Client> {
        self.users.client()
    }

    fn launch_worker(&mut self) -> Result<()> {
        let name = format!("worker-{}", self.started);
        self.started += 1;
        let arguments: Vec<&str> = self.campaign.iter().map(String::as_str).collect();
        self.users.launch_worker(&name, 1, "error", &arguments)
    }

    /// Sends a signal to the worker with this name.
    pub(super) fn strike_worker(&self, name: &str, signal: Signal) -> Result<()> {
        self.users.signal_worker(name, signal)
    }

    /// Waits until the worker has ended, and starts another one.
    pub(super) async fn replace_worker(&mut self, name: &str) -> Result<()> {
        self.users.reap_worker(name).await?;
        self.launch_worker()
    }

    /// The address of the leading server; empty while none leads.
    fn leading_address(&self) -> Result<String> {
        Ok(self.database.ask(LEADING)?.trim().to_owned())
    }

    fn is_at(&self, server: usize, address: &str) -> bool {
        address.ends_with(&format!(":{}", self.servers[server].port()))
    }

    /// The index of the server that leads the services of the store.
    pub(super) async fn leading_server(&self) -> Result<usize> {
        let began = Instant::now();
        loop {
            let address = self.leading_address()?;
            if let Some(server) = (0..SERVERS).find(|server| self.is_at(*server, &address)) {
                return Ok(server);
            }
            ensure!(began.elapsed() < PATIENCE, "no server leads after {PATIENCE:?}");
            time::sleep(ASK_EVERY).await;
        }
    }

    /// Whether another server than this one leads.
    pub(super) fn other_leads(&self, server: usize) -> Result<bool> {
        let address = self.leading_address()?;
        Ok(!address.is_empty() && !self.is_at(server, &address))
    }

    /// The fence of the leading server.
    pub(super) fn fence(&self) -> Result<usize> {
        Ok(self.database.ask(FENCE)?.trim().parse()?)
    }

    /// Sends a signal to a server.
    pub(super) fn strike_server(&self, server: usize, signal: Signal) -> Result<()> {
        self.servers[server].signal_server(signal)
    }

    /// Continues a server that was stopped by this signal, or starts another one at the same address.
    pub(super) async fn revive_server(&mut self, server: usize, signal: Signal) -> Result<()> {
        let fleet = &mut self.servers[server];
        if signal == Signal::STOP {
            return fleet.signal_server(Signal::CONT);
        }
        fleet.reap_server().await?;
        fleet.start_server().await?;
        Ok(())
    }

    /// Ends the workers, then the servers.
    pub(super) async fn stop(self) -> Result<()> {
        self.users.stop().await?;
        for server in self.servers {
            server.stop().await?;
        }
        Ok(())
    }
}
