//! `windlass worker`: a worker whose handlers are the commands of a folder, for a server, over a broker, or both.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use windlass_client::{Client, Worker, WorkerBuilder, brokers::Queue};

use super::catalogue::Catalogue;
use super::runner::Runner;
use crate::brokers::{Keys, check_queue};

/// What a worker of a module folder needs to know.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Address of the server, as `http://127.0.0.1:7700`. Over a broker a worker needs none.
    pub server: Option<String>,
    /// Where the steps come from, if not from the server.
    pub broker: Option<BrokerOptions>,
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

/// What a worker over a broker needs to know.
#[derive(Clone)]
pub struct BrokerOptions {
    /// Its URL.
    pub url: String,
    /// Where to tell what became of steps, when there is no server.
    pub results: String,
    /// Queues of modules that are not called like them.
    pub queues: Vec<(String, String)>,
    /// What kind of queues, where the broker has several.
    pub kind: Option<String>,
}

impl fmt::Debug for BrokerOptions {
    /// Without the URL, which may have a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, results, queues, kind } = self;
        f.debug_struct("BrokerOptions")
            .field("results", results)
            .field("queues", queues)
            .field("kind", kind)
            .finish_non_exhaustive()
    }
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
    let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
    let builder = builder(options.server, options.token, options.broker, &names)?;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let mut worker = builder
        .name(options.name.unwrap_or_else(default_name))
        .concurrency(options.concurrency.unwrap_or_else(cores));
    for (name, commands) in modules {
        tracing::info!(module = name, commands = commands.join(" "), "serving");
        worker = worker.module(name, Some(commands), runner.clone());
    }
    worker.build()?.run(shutdown).await?;
    Ok(())
}

/// A worker that serves nothing yet, with its way to the server, to the broker, or both.
fn builder(
    server: Option<String>,
    token: Option<String>,
    broker: Option<BrokerOptions>,
    modules: &[&str],
) -> anyhow::Result<WorkerBuilder> {
    let client = match server {
        Some(server) => {
            let client = Client::new(&server)?;
            Some(match token {
                Some(token) => client.with_token(token),
                None => client,
            })
        }
        None => None,
    };
    let Some(BrokerOptions { url, results, queues, kind }) = broker else {
        return client.map(Worker::builder).context("the worker has neither a server nor a broker");
    };
    let broker = windlass_brokers::connect(&url).context("cannot use the broker")?;
    let queue = |name: String, said_by: &str| {
        let queue = Queue { name, kind: kind.clone() };
        let keys = Keys { name: said_by, kind: "--queue-kind" };
        check_queue(&*broker, &queue, keys)
            .map(|()| queue)
            .with_context(|| format!("cannot use {}", broker.name()))
    };
    let mut builder = match client {
        Some(client) => Worker::builder(client).over(broker.clone()),
        None => Worker::one_way(broker.clone(), queue(results, "--results")?),
    };
    let named = modules.iter().map(|module| ((*module).to_owned(), (*module).to_owned()));
    let by_module: BTreeMap<String, String> = named.chain(queues).collect();
    for (module, name) in by_module {
        let queue = queue(name, &format!("--queue {module}=…"))?;
        builder = builder.queue(module, queue);
    }
    Ok(builder)
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
