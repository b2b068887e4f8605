//! `windlass worker`: a worker whose handlers are the commands of a folder, for a server, over a broker, or
//! both.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use windlass_client::{
    Client, Secrets, Worker, WorkerBuilder,
    brokers::Queue,
    coordinators::{Campaign, Coordinator},
};

use super::catalogue::Catalogue;
use super::runner::Runner;
use crate::brokers::{Keys, check_queue};

/// The settings of a worker for a module folder.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The server. Optional with a broker. Commands do not get its token.
    pub server: Option<Client>,
    /// The broker that the steps come from; none = the server.
    pub broker: Option<BrokerOptions>,
    /// The module folder.
    pub modules_dir: PathBuf,
    /// Serve only these modules; empty = all modules of the folder.
    pub only_modules: Vec<String>,
    /// The number of commands that may run concurrently; none = one per core.
    pub concurrency: Option<usize>,
    /// The worker's name in lists and logs; none = the machine's name and the process id.
    pub name: Option<String>,
    /// The name that the worker must lead to work; none = it always works.
    pub exclusive: Option<Exclusive>,
    /// Where it finds the values of secrets.
    pub secrets: SecretSources,
}

/// Where a worker finds the values of secrets; it asks in this order.
#[derive(Debug, Clone, Default)]
pub struct SecretSources {
    /// Environment variables with this prefix. Commands do not inherit them.
    pub prefix: Option<String>,
    /// The files of a folder.
    pub folder: Option<PathBuf>,
    /// A program that gets the name and prints the value.
    pub command: Option<PathBuf>,
}

impl SecretSources {
    fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::new();
        if let Some(prefix) = &self.prefix {
            secrets = secrets.environment(prefix);
        }
        if let Some(folder) = &self.folder {
            secrets = secrets.folder(folder);
        }
        if let Some(command) = &self.command {
            secrets = secrets.command(command);
        }
        secrets
    }
}

/// Where a worker campaigns that works only while it leads.
#[derive(Clone)]
pub struct Exclusive {
    /// The coordinator.
    pub coordinator: Arc<dyn Coordinator>,
    /// The campaign.
    pub campaign: Campaign,
}

impl fmt::Debug for Exclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exclusive")
            .field("coordinator", &self.coordinator.name())
            .field("campaign", &self.campaign)
            .finish()
    }
}

/// The settings of a worker over a broker.
#[derive(Clone)]
pub struct BrokerOptions {
    /// Its URL.
    pub url: String,
    /// The queue for results, when there is no server.
    pub results: String,
    /// Queues of modules whose names differ from the modules'.
    pub queues: Vec<(String, String)>,
    /// The kind of the queues, where the broker has several.
    pub kind: Option<String>,
}

impl fmt::Debug for BrokerOptions {
    /// Leaves out the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, results, queues, kind } = self;
        f.debug_struct("BrokerOptions")
            .field("results", results)
            .field("queues", queues)
            .field("kind", kind)
            .finish_non_exhaustive()
    }
}

/// Serves the commands of a folder until `shutdown` resolves and all running attempts have ended.
///
/// # Errors
/// When the folder contains no command, or the server refuses the worker.
pub async fn serve(options: WorkerOptions, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    hide_from_commands();
    let has_token = options.server.as_ref().is_some_and(Client::has_token);
    if (has_token || options.broker.is_some()) && rustix::process::geteuid().is_root() {
        tracing::warn!(
            "this worker runs as root, so its commands can read its token and the password of its broker: run it as a separate user"
        );
    }
    let catalogue = Catalogue::read(&options.modules_dir)?.only(&options.only_modules)?;
    for entry in catalogue.passed_over() {
        tracing::warn!(path = %entry.path.display(), reason = entry.reason, "skipped an entry of the module folder");
    }
    for path in catalogue.leading_out() {
        tracing::warn!(path = %path.display(), "this command is a symbolic link to a file outside of the module folder");
    }
    let modules: Vec<(String, Vec<String>)> =
        catalogue.modules().map(|(name, commands)| (name.to_owned(), commands)).collect();
    let runner = Runner::new(catalogue, this_program()?).context("cannot start the guard of the modules")?;
    let runner = Arc::new(runner.withholding(options.secrets.prefix.clone()));
    let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
    let builder = builder(options.server, options.broker, &names)?;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let mut worker = builder
        .name(options.name.unwrap_or_else(default_name))
        .concurrency(options.concurrency.unwrap_or_else(cores))
        .secrets(options.secrets.secrets());
    if let Some(Exclusive { coordinator, campaign }) = options.exclusive {
        worker = worker.exclusive(coordinator, campaign);
    }
    for (name, commands) in modules {
        tracing::info!(module = name, commands = commands.join(" "), "serving");
        worker = worker.module(name, Some(commands), runner.clone());
    }
    worker.build()?.run(shutdown).await?;
    Ok(())
}

/// A worker without modules, connected to the server, the broker, or both.
fn builder(
    client: Option<Client>,
    broker: Option<BrokerOptions>,
    modules: &[&str],
) -> anyhow::Result<WorkerBuilder> {
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
    let results_here = client.is_none().then_some(results.as_str());
    let by_module = queues_by_module(modules, queues, results_here)?;
    let mut builder = match client {
        Some(client) => Worker::builder(client).over(broker.clone()),
        None => Worker::one_way(broker.clone(), queue(results, "--results")?),
    };
    for (module, name) in by_module {
        let queue = queue(name, &format!("--queue {module}=…"))?;
        builder = builder.queue(module, queue);
    }
    Ok(builder)
}

/// The queue of each module: its name, unless `given` has another one.
fn queues_by_module(
    modules: &[&str],
    given: Vec<(String, String)>,
    results: Option<&str>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut by_module = BTreeMap::new();
    for (module, queue) in given {
        if let Some(before) = by_module.insert(module.clone(), queue.clone()) {
            bail!(
                "`--queue {module}={before}` and `--queue {module}={queue}`: a module has one queue, so leave one of them out"
            );
        }
    }
    for module in modules {
        by_module.entry((*module).to_owned()).or_insert_with(|| (*module).to_owned());
    }
    let results = results.map(|results| (results, "results (`--results`)".to_owned()));
    let mut uses: BTreeMap<&str, String> = results.into_iter().collect();
    for (module, queue) in &by_module {
        let used = format!("the module {module} (`--queue {module}=…`)");
        if let Some(before) = uses.insert(queue, used.clone()) {
            bail!("the queue {queue} is for {before} and for {used}: use separate queues");
        }
    }
    for queue in uses.keys() {
        let dead = Queue::new(*queue).dead();
        if let Some(used) = uses.get(dead.name.as_str()) {
            bail!(
                "the queue {dead} is for {used}, and is the dead-letter queue of {queue}: use separate queues"
            );
        }
    }
    Ok(by_module)
}

/// Keeps commands that run as the worker's user from reading its environment and memory, which contain its
/// token and the password of its broker. This does not protect against commands that run as root.
#[cfg(target_os = "linux")]
pub(crate) fn hide_from_commands() {
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!(%error, "commands can read the environment and memory of this worker");
    }
}

/// On other systems a process can only read the environment of another one that its user may trace.
#[cfg(not(target_os = "linux"))]
pub(crate) fn hide_from_commands() {}

/// The path of this program. It stays valid when an upgrade replaces the file while the worker runs: the stub
/// and the guard must have the worker's version.
pub(crate) fn this_program() -> anyhow::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        Ok(running)
    } else {
        std::env::current_exe().context("cannot find this program's file")
    }
}

/// The machine's name and the process id.
pub(crate) fn default_name() -> String {
    let host = rustix::system::uname();
    format!("{}-{}", host.nodename().to_string_lossy(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(given: &[(&str, &str)], results: Option<&str>) -> anyhow::Result<BTreeMap<String, String>> {
        let owned = |(module, queue): &(&str, &str)| ((*module).to_owned(), (*queue).to_owned());
        queues_by_module(&["alpha", "beta"], given.iter().map(owned).collect(), results)
    }

    #[test]
    fn a_module_has_a_queue_of_its_own() {
        let by_module = queues(&[("beta", "b")], Some("done")).unwrap();
        assert_eq!((by_module["alpha"].as_str(), by_module["beta"].as_str()), ("alpha", "b"));
        assert!(queues(&[("beta", "alpha"), ("alpha", "beta")], None).is_ok());
        let error = |given: &[(&str, &str)]| queues(given, Some("done")).unwrap_err().to_string();
        assert!(error(&[("beta", "a"), ("beta", "b")]).contains("`--queue beta=a` and `--queue beta=b`"));
        let shared = error(&[("beta", "alpha")]);
        assert!(
            shared.contains("(`--queue alpha=…`) and for the module beta (`--queue beta=…`)"),
            "{shared}"
        );
        assert!(error(&[("beta", "done")]).contains("results (`--results`) and for the module beta"));
        assert!(error(&[("beta", "alpha-dead")]).contains("is the dead-letter queue of alpha"));
        assert!(queues(&[("beta", "done")], None).is_ok(), "with a server no results queue is used");
    }
}
