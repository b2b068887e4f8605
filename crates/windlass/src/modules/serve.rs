//! `windlass worker`: a worker whose handlers are the commands of a folder.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use windlass_client::{Client, Worker};

use super::catalogue::Catalogue;
use super::runner::Runner;

/// What a worker of a module folder needs to know.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Address of the server, as `http://127.0.0.1:7700`.
    pub server: String,
    /// Token for the server's API; it is not passed on to commands.
    pub token: Option<String>,
    /// The folder with the modules.
    pub modules_dir: PathBuf,
    /// Serve only these modules; empty = all of the folder.
    pub only_modules: Vec<String>,
    /// How many commands may run at once; one per core when left out.
    pub concurrency: Option<usize>,
    /// What people see the worker called; the machine's name and the process id when left out.
    pub name: Option<String>,
}

/// Serves the commands of a folder until `shutdown` resolves and what was running then has ended.
///
/// # Errors
/// When the folder holds no command, or the server refuses the worker.
pub async fn serve(options: WorkerOptions, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    let catalogue = Catalogue::read(&options.modules_dir)?.only(&options.only_modules)?;
    for entry in catalogue.passed_over() {
        tracing::warn!(path = %entry.path.display(), reason = entry.reason, "passed over in the module folder");
    }
    let modules: Vec<(String, Vec<String>)> =
        catalogue.modules().map(|(name, commands)| (name.to_owned(), commands)).collect();
    let runner =
        Arc::new(Runner::new(catalogue, this_program()?).context("cannot start the guard of the modules")?);
    let mut client = Client::new(&options.server)?;
    if let Some(token) = options.token {
        client = client.with_token(token);
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let mut worker = Worker::builder(client)
        .name(options.name.unwrap_or_else(default_name))
        .concurrency(options.concurrency.unwrap_or_else(cores));
    for (name, commands) in modules {
        tracing::info!(module = name, commands = commands.join(" "), "serving");
        worker = worker.module(name, Some(commands), runner.clone());
    }
    worker.build()?.run(shutdown).await?;
    Ok(())
}

/// This program as a path that stays right when its file is replaced by an upgrade while the worker runs: the
/// stub and the guard must be of the worker's own version.
fn this_program() -> anyhow::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        Ok(running)
    } else {
        std::env::current_exe().context("cannot find this program's file")
    }
}

fn default_name() -> String {
    let host = rustix::system::uname();
    format!("{}-{}", host.nodename().to_string_lossy(), std::process::id())
}
