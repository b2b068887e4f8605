//! `windlass dev`: server and worker in one process, for development.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{exit::Exit, logging::LogArgs, signals, worker::SecretsArgs};
use crate::{
    config::{ServerConfig, ServerSection, parse_listen},
    dev::{self, Modules},
    server::Checked,
};

/// Settings of the development server.
#[derive(Debug, Clone, Args)]
pub(crate) struct DevArgs {
    /// Folder of flow files, applied at the start and again after a change
    #[arg(long, value_name = "DIR")]
    pub(crate) flows: Option<PathBuf>,

    /// Folder of modules to serve, read at the start
    #[arg(long, value_name = "DIR")]
    pub(crate) modules: Option<PathBuf>,

    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", env = "WINDLASS_SERVER_LISTEN", default_value = "127.0.0.1:7700", value_parser = parse_listen)]
    pub(crate) listen: SocketAddr,

    /// The store of the tasks: sqlite:PATH, postgres://…, mysql://… or memory:
    #[arg(
        long,
        value_name = "URL",
        env = "WINDLASS_SERVER_STORE",
        hide_env_values = true,
        default_value = "sqlite:windlass.db"
    )]
    pub(crate) store: String,

    #[command(flatten)]
    secrets: SecretsArgs,

    #[command(flatten)]
    pub(super) log: LogArgs,
}

impl DevArgs {
    /// Runs the server and a worker until a stop signal.
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let given =
            ServerSection { listen: Some(self.listen), store: Some(self.store), ..ServerSection::default() };
        let config = ServerConfig::load(given, None)?;
        let checked = Checked::new(&config, false)?;
        let secrets = self.secrets.sources()?;
        let modules = self.modules.map(|folder| Modules { folder, secrets });
        dev::run(checked, self.flows, modules, signals::shutdown()?).await?;
        Ok(Exit::Done)
    }
}
