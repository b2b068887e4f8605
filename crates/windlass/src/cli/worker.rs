//! `windlass worker`: runs the commands of module folders.

use std::path::PathBuf;

use clap::Args;

use super::connection::ConnectionArgs;
use crate::modules::WorkerOptions;

/// What to serve.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The folder of modules: DIR/MODULE/COMMAND are executable files
    #[arg(long, value_name = "DIR")]
    modules: PathBuf,

    /// Only this module of the folder; may be given more than once
    #[arg(long = "module", value_name = "NAME")]
    only_modules: Vec<String>,

    /// How many attempts to run at the same time [default: one per core]
    #[arg(long, value_name = "N")]
    concurrency: Option<std::num::NonZeroU32>,

    /// Its name, for people [default: the name of the machine and the process]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}
