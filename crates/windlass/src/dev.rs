//! `windlass dev`: a server and a worker in one process. Applies flow files when they change.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use tokio::sync::watch;
use windlass_client::Client;
use windlass_engine::{Engine, EngineError};
use windlass_store::Clock as _;

use crate::{
    chain,
    clock::SystemClock,
    flowfile::{self, Format},
    loops::Loops,
    modules::{self, SecretSources, WorkerOptions},
    server::{Checked, Server},
};

/// The interval at which the folder of flows is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The modules of the development server.
pub(crate) struct Modules {
    /// Their folder.
    pub(crate) folder: PathBuf,
    /// Where their worker finds the values of secrets.
    pub(crate) secrets: SecretSources,
}

/// Runs the server and the worker until `shutdown`.
pub(crate) async fn run(
    checked: Checked<'_>,
    flows: Option<PathBuf>,
    modules: Option<Modules>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let server = Server::open(checked).await?;
    server.check_clock()?;
    let url = format!("http://{}", server.address()?);
    println!("listening on {url}");
    let (stop, stopped) = watch::channel(false);
    let (engine, clock) = (server.engine(), server.clock());
    let mut serving = tokio::spawn(server.run(wait(stopped)));
    let mut loops = Loops::default();
    if let Some(dir) = flows {
        let mut watcher = FlowWatcher::new(dir, engine, clock);
        watcher.look().await?;
        loops.spawn("applies flows as they change", watcher.run());
    }
    let working = async {
        match modules {
            Some(modules) => modules::serve(worker(Client::new(&url)?, modules), shutdown).await,
            None => {
                shutdown.await;
                Ok(())
            }
        }
    };
    tokio::select! {
        worked = working => worked?,
        // The worker alone would wait for its server for ever.
        served = &mut serving => return served?,
        error = loops.ended() => return Err(error),
    }
    // The server ends last, so that the worker can report its last results. It may have ended by itself.
    let _ = stop.send(true);
    serving.await?
}

fn worker(server: Client, modules: Modules) -> WorkerOptions {
    WorkerOptions {
        server: Some(server),
        broker: None,
        modules_dir: modules.folder,
        secrets: modules.secrets,
        only_modules: Vec::new(),
        concurrency: None,
        exclusive: None,
        name: Some("dev".to_owned()),
    }
}

async fn wait(mut stopped: watch::Receiver<bool>) {
    // The sender lives until it has sent.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Applies the flow files of a folder, and changed files again.
struct FlowWatcher {
    dir: PathBuf,
    engine: Arc<Engine>,
    clock: Arc<SystemClock>,
    seen: BTreeMap<PathBuf, SystemTime>,
}

impl FlowWatcher {
    fn new(dir: PathBuf, engine: Arc<Engine>, clock: Arc<SystemClock>) -> Self {
        Self { dir, engine, clock, seen: BTreeMap::new() }
    }

    async fn run(mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = self.look().await {
                tracing::error!("{error:#}");
            }
        }
    }

    /// Applies the files changed since the last check. An invalid file does not affect the others, and is
    /// tried again once it has changed.
    async fn look(&mut self) -> anyhow::Result<()> {
        let files = flowfile::flow_files(&self.dir)
            .with_context(|| format!("cannot read the folder of flows {}", self.dir.display()))?;
        for path in files {
            let modified = path.metadata()?.modified()?;
            if self.seen.insert(path.clone(), modified) != Some(modified)
                && let Err(error) = self.apply(&path).await
            {
                tracing::error!("{error:#}");
                if error.is::<EngineError>() {
                    // The engine failed, not the file: try again at the next check.
                    self.seen.remove(&path);
                }
            }
        }
        Ok(())
    }

    async fn apply(&self, path: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(path)?;
        let place = |error: flowfile::FlowError| match (error.line, error.column) {
            (Some(line), Some(column)) => anyhow::anyhow!("{}:{line}:{column}: {error}", path.display()),
            _ => anyhow::anyhow!("{}: {error}", path.display()),
        };
        for source in flowfile::read(&text, Format::of_path(path)?).map_err(place)? {
            let flow = flowfile::compile(&source).map_err(place)?;
            if let Some(bad) = chain::check(&self.engine, &flow).await? {
                return Err(place(source.error(&bad.path(), bad.message)));
            }
            let applied = self.engine.apply_flow(flow, self.clock.now()).await?;
            if applied.changed {
                println!("applied flow {} version {}", applied.stored.flow.name, applied.stored.flow.version);
            }
        }
        Ok(())
    }
}
