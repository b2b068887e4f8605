//! `windlass worker`: runs the commands of module folders.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;

use super::{connection::ConnectionArgs, exit::Exit, logging, signals};
use crate::modules::{self, WorkerOptions};

/// What to serve.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The folder of modules: every executable DIR/MODULE/COMMAND is served
    #[arg(long, value_name = "DIR")]
    modules: PathBuf,

    /// Only this module of the folder; may be given more than once
    #[arg(long = "module", value_name = "NAME")]
    only_modules: Vec<String>,

    /// How many commands to run at the same time [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_concurrency)]
    concurrency: Option<NonZeroUsize>,

    /// Its name, for people [default: the machine's name and the process id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

fn parse_concurrency(text: &str) -> Result<NonZeroUsize, String> {
    let number: usize =
        text.parse().map_err(|_| "write how many commands may run at once, such as 4".to_owned())?;
    NonZeroUsize::new(number).ok_or_else(|| "a worker of 0 runs nothing: write 1 or more".to_owned())
}

impl WorkerArgs {
    /// Runs the worker until it is told to stop.
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<Exit> {
        logging::start();
        let options = WorkerOptions {
            server: connection.server.clone(),
            token: connection.token.clone(),
            modules_dir: self.modules,
            only_modules: self.only_modules,
            concurrency: self.concurrency.map(NonZeroUsize::get),
            name: self.name,
        };
        modules::serve(options, signals::shutdown()?).await?;
        Ok(Exit::Done)
    }
}
