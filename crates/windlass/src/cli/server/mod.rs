//! `windlass server`: runs a server.

pub(super) mod list;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};
use windlass_api::Span;

use super::{exit::Exit, logging::LogArgs, signals};
use crate::{
    config::{AccessSection, Given, ServerConfig, ServerSection, parse_listen, values, variables},
    server::{Checked, Server},
    service_manager,
};

/// `windlass server`, which runs one, or one of its subcommands.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServerCommand {
    #[command(subcommand)]
    pub(super) action: Option<ServerAction>,

    #[command(flatten)]
    pub(super) args: ServerArgs,
}

/// What `windlass server` does besides running one.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum ServerAction {
    /// List the servers on the store
    List,
    /// Print the JSON Schema of the configuration file, for editors; needs no server
    Schema,
}

/// Settings of the server. Missing ones come from the configuration file, then from the defaults.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Address to listen on [default: 127.0.0.1:7700]
    #[arg(long, value_name = "ADDRESS", env = "WINDLASS_SERVER_LISTEN", value_parser = parse_listen)]
    pub(crate) listen: Option<SocketAddr>,

    /// URL under which others reach this server, for `server list` [default: http:// and the address]
    #[arg(long, value_name = "URL", env = "WINDLASS_SERVER_ADVERTISE", value_parser = |text: &str| values::of_text(text, values::advertise))]
    pub(crate) advertise: Option<String>,

    /// The store of the tasks: sqlite:PATH, postgres://…, mysql://… or memory: [default: sqlite:windlass.db]
    #[arg(long, value_name = "URL", env = "WINDLASS_SERVER_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// How long to keep ended tasks, with their history and idempotency keys; at least 1d [default: 30d]
    #[arg(long, value_name = "TIME", env = "WINDLASS_SERVER_KEEP_TASKS", value_parser = |text: &str| values::of_text(text, values::keep_tasks))]
    pub(crate) keep_tasks: Option<Span>,

    /// How long to keep log lines; at least 1m [default: 7d]
    #[arg(long, value_name = "TIME", env = "WINDLASS_SERVER_KEEP_LOGS", value_parser = |text: &str| values::of_text(text, values::keep_logs))]
    pub(crate) keep_logs: Option<Span>,

    /// How long to keep the audit log; at least 1d [default: 365d]
    #[arg(long, value_name = "TIME", env = "WINDLASS_SERVER_KEEP_AUDIT", value_parser = |text: &str| values::of_text(text, values::keep_audit))]
    pub(crate) keep_audit: Option<Span>,

    /// The most connections of one client address; behind a balancer all clients share one address [default:
    /// 2048]
    #[arg(long, value_name = "N", env = "WINDLASS_SERVER_CLIENT_CONNECTIONS", value_parser = |text: &str| values::of_text(text, values::client_connections))]
    pub(crate) client_connections: Option<usize>,

    /// The most MiB that the request bodies of one client address may take at once [default: 64]
    #[arg(long, value_name = "MIB", env = "WINDLASS_SERVER_CLIENT_BODY_MIB", value_parser = |text: &str| values::of_text(text, values::client_body_mib))]
    pub(crate) client_body_mib: Option<usize>,

    /// MiB of parameters and results of active tasks to keep in memory; the others are read from the SQLite file when
    /// they are needed. 0 keeps all of them [default: 256]
    #[arg(long, value_name = "MIB", env = "WINDLASS_SERVER_RESIDENT_MIB", value_parser = |text: &str| values::of_text(text, values::resident_mib))]
    pub(crate) resident_mib: Option<u64>,

    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "WINDLASS_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Ask for an access token with each request; `false` asks for none, whatever the file says [default: false]
    #[arg(long, value_name = "BOOL", env = "WINDLASS_ACCESS_TOKENS", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) require_tokens: Option<bool>,

    /// File with an access token that gets the role admin at the start, in place of one that the server makes and prints
    #[arg(long, value_name = "FILE", env = "WINDLASS_ACCESS_ADMIN_TOKEN_FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// File with the certificate of the server, in PEM format: connections are encrypted. It may be replaced at any time
    #[arg(long, value_name = "FILE", env = "WINDLASS_SERVER_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// File with the private key of the certificate
    #[arg(long, value_name = "FILE", env = "WINDLASS_SERVER_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,

    /// File with the CA certificates for client certificates: each client must show one
    #[arg(long, value_name = "FILE", env = "WINDLASS_SERVER_TLS_CLIENT_CA")]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// Listen on an address that other machines can reach, without access tokens or without TLS
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Start even if the machine's clock is years ahead of all known times
    #[arg(long)]
    pub(crate) trust_clock: bool,

    /// Print the effective settings, without secrets, and exit
    #[arg(long)]
    pub(crate) print_config: bool,

    #[command(flatten)]
    pub(super) log: LogArgs,
}

impl ServerArgs {
    /// Runs the server until a stop signal.
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let server = ServerSection {
            listen: self.listen,
            advertise: self.advertise,
            store: self.store,
            keep_tasks: self.keep_tasks,
            keep_logs: self.keep_logs,
            keep_audit: self.keep_audit,
            client_connections: self.client_connections,
            client_body_mib: self.client_body_mib,
            resident_mib: self.resident_mib,
            tls_cert: self.tls_cert,
            tls_key: self.tls_key,
            tls_client_ca: self.tls_client_ca,
        };
        let access = AccessSection { tokens: self.require_tokens, admin_token_file: self.admin_token_file };
        let given = Given { server, access, variables: variables::of_process()? };
        let config = ServerConfig::load(given, self.config.as_deref())?;
        let checked = Checked::new(&config, self.insecure)?;
        if self.print_config {
            print!("{}", config.to_toml()?);
            return Ok(Exit::Done);
        }
        let shutdown = signals::shutdown()?;
        signals::ignore_hangup(config.tls.is_some())?;
        let server = Server::open(checked).await?;
        if !self.trust_clock {
            server.check_clock()?;
        }
        println!("listening on {}", server.url()?);
        service_manager::is_ready();
        if let Some(lack) = config.lacks() {
            tracing::warn!("other machines can reach this server, and {lack}");
        }
        let others = server.others().await?;
        let beside = (!others.is_empty()).then(|| others.join(", "));
        tracing::info!(id = %server.id(), store = %config.store, beside, "serving");
        server.run(shutdown).await?;
        Ok(Exit::Done)
    }
}
