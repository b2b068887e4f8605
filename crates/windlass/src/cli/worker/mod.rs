//! `windlass worker`: runs the commands of module folders, for a server or over a broker.

pub(super) mod list;

use std::{fs, num::NonZeroUsize, path::PathBuf};

use anyhow::Context as _;
use clap::{ArgGroup, Args, Subcommand};
use windlass_api::Span;

use super::{
    connection::{ConnectionArgs, read_given_secret},
    coordinator::{CoordinatorArgs, LEASE_DEFAULT, campaign},
    exit::Exit,
    logging::LogArgs,
    signals,
};
use crate::{
    brokers::RESULTS_DEFAULT,
    modules::{self, BrokerOptions, Exclusive, SecretSources, WorkerOptions},
};

/// What `windlass worker` does besides running one.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum WorkerList {
    /// List the connected workers
    List,
}

/// The settings of a worker.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("from_broker").args(["broker", "broker_file"]),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(super) list: Option<WorkerList>,

    /// The folder of modules, read at the start: every executable DIR/MODULE/COMMAND is served
    #[arg(long, value_name = "DIR", required = true)]
    modules: Option<PathBuf>,

    /// Only this module of the folder; may be given more than once
    #[arg(long = "module", value_name = "NAME")]
    only_modules: Vec<String>,

    /// How many commands to run at the same time [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_concurrency)]
    concurrency: Option<NonZeroUsize>,

    /// Its name in lists and logs [default: the machine's name and the process id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Receive steps from queues of this broker; with --server the worker asks the server before it runs a
    /// step and sends results there
    #[arg(long, value_name = "URL", env = "WINDLASS_BROKER", hide_env_values = true)]
    broker: Option<String>,

    /// File with the URL of the broker, in place of --broker: commands of other users cannot read its
    /// password
    #[arg(long, value_name = "FILE", env = "WINDLASS_BROKER_FILE", conflicts_with = "broker")]
    broker_file: Option<PathBuf>,

    /// Send results to this queue of the broker, without a server [default: windlass-results]
    #[arg(long, value_name = "QUEUE", requires = "from_broker")]
    results: Option<String>,

    /// The broker's queue of a module, if its name differs from the module's; may be given more than once
    #[arg(long = "queue", value_name = "MODULE=QUEUE", requires = "from_broker", value_parser = parse_queue)]
    queues: Vec<(String, String)>,

    /// The kind of the queues, where the broker has several
    #[arg(long, value_name = "KIND", requires = "from_broker")]
    queue_kind: Option<String>,

    /// Work only while this worker leads NAME: of all workers that campaign for NAME, one works. Without
    /// --coordinator, the server elects it
    #[arg(long, value_name = "NAME")]
    exclusive: Option<String>,

    /// With --exclusive: a worker that is killed is replaced after at most this time and 1 s, 2 s to 1 h
    #[arg(long, value_name = "DURATION", requires = "exclusive", default_value = LEASE_DEFAULT)]
    exclusive_lease: Span,

    #[command(flatten)]
    coordinator: CoordinatorArgs,

    #[command(flatten)]
    secrets: SecretsArgs,

    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// Where a worker finds the values of secrets. It asks in this order.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SecretsArgs {
    /// Find the values of secrets in environment variables: secret://db-admin is in PREFIX and DB_ADMIN. Commands
    /// do not inherit variables with this prefix
    #[arg(long, value_name = "PREFIX", env = "WINDLASS_SECRETS_ENV", value_parser = parse_prefix)]
    secrets_env: Option<String>,

    /// Find the values of secrets in files of this folder: secret://db-admin is in DIR/db-admin
    #[arg(long, value_name = "DIR", env = "WINDLASS_SECRETS_DIR")]
    secrets_dir: Option<PathBuf>,

    /// Find the values of secrets with this program: it gets the name as its argument and prints the value
    #[arg(long, value_name = "PROGRAM", env = "WINDLASS_SECRETS_COMMAND")]
    secrets_command: Option<PathBuf>,
}

impl SecretsArgs {
    /// The sources that were given.
    pub(crate) fn sources(self) -> anyhow::Result<SecretSources> {
        if let Some(folder) = &self.secrets_dir {
            fs::read_dir(folder)
                .with_context(|| format!("cannot read the folder of secrets {}", folder.display()))?;
        }
        Ok(SecretSources {
            prefix: self.secrets_env,
            folder: self.secrets_dir,
            command: self.secrets_command,
        })
    }
}

fn parse_prefix(text: &str) -> Result<String, String> {
    let is_variable = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if text.is_empty() || !is_variable(text) {
        return Err(
            "write the beginning of the names of variables, such as SECRET_: an empty one would give tasks \
                    every variable of the worker"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

fn parse_queue(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((module, queue)) if !module.is_empty() && !queue.is_empty() => {
            Ok((module.to_owned(), queue.to_owned()))
        }
        _ => Err("write MODULE=QUEUE, such as mysql=database-steps".to_owned()),
    }
}

fn parse_concurrency(text: &str) -> Result<NonZeroUsize, String> {
    let number: usize =
        text.parse().map_err(|_| "write how many commands may run at once, such as 4".to_owned())?;
    NonZeroUsize::new(number)
        .ok_or_else(|| "a worker with concurrency 0 runs nothing: use 1 or more".to_owned())
}

impl WorkerArgs {
    /// Runs the worker until a stop signal.
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<Exit> {
        let exclusive = self.exclusive.map(|name| {
            let coordinator = self.coordinator.open_confirmed(connection)?;
            let campaign = campaign(name, self.name.clone(), self.exclusive_lease);
            coordinator.check(&campaign)?;
            anyhow::Ok(Exclusive { coordinator, campaign })
        });
        let exclusive = exclusive.transpose()?;
        if exclusive.is_none() && self.coordinator.is_given() {
            tracing::warn!("without --exclusive the coordinator is not used: this worker always works");
        }
        let broker = match &self.broker_file {
            Some(file) => Some(read_given_secret(file, "URL of the broker")?),
            None => self.broker,
        };
        let options = WorkerOptions {
            server: has_server(connection, &broker, &self.results)
                .then(|| connection.client_with_token())
                .transpose()?,
            broker: broker.map(|url| BrokerOptions {
                url,
                results: self.results.unwrap_or_else(|| RESULTS_DEFAULT.to_owned()),
                queues: self.queues,
                kind: self.queue_kind,
            }),
            modules_dir: self.modules.context("--modules is missing")?,
            only_modules: self.only_modules,
            concurrency: self.concurrency.map(NonZeroUsize::get),
            name: self.name,
            exclusive,
            secrets: self.secrets.sources()?,
        };
        let shutdown = signals::shutdown()?;
        signals::ignore_hangup(false)?;
        modules::serve(options, shutdown).await?;
        Ok(Exit::Done)
    }
}

/// Whether the worker has a server. Over a broker, it has one only if one was given and `--results` was not.
fn has_server(connection: &ConnectionArgs, broker: &Option<String>, results: &Option<String>) -> bool {
    match (broker, results) {
        (None, _) => true,
        (Some(_), None) => connection.server.is_some(),
        (Some(_), Some(_)) => false,
    }
}
