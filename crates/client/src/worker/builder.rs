//! Making a worker.

use std::{future::Future, num::NonZero, sync::Arc, thread, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use windlass_api::WorkerInfo;

use super::{Failure, Handler, Job, Settings, Work, Worker, registry::Registry, typed::TypedCommand};
use crate::{Client, Error};

/// How long a drain waits for what runs before it is stopped: what most service managers allow.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// What a worker serves and how. Mistakes are told by [`WorkerBuilder::build`].
#[derive(Debug)]
#[must_use]
pub struct WorkerBuilder {
    pub(super) work: Work,
    settings: Settings,
    registry: Registry,
    /// The first mistake.
    mistake: Option<Error>,
}

impl WorkerBuilder {
    pub(super) fn new(client: Client) -> Self {
        Self::doing(Work::Server(client))
    }

    pub(super) fn doing(work: Work) -> Self {
        let host = host_name();
        let settings = Settings {
            info: WorkerInfo {
                name: format!("{host}-{}", std::process::id()),
                host,
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            concurrency: thread::available_parallelism().map_or(1, NonZero::get),
            lease: None,
            drain_timeout: DRAIN_TIMEOUT,
        };
        Self { work, settings, registry: Registry::default(), mistake: None }
    }

    /// Its name, for people; the host's with the process id when left out.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.info.name = name.into();
        self
    }

    /// The machine it runs on, for people; the host's own name when left out.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.settings.info.host = host.into();
        self
    }

    /// How many attempts may run at a time, over all modules; the number of cores when left out.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// Serves a module with one handler: these commands of it, or all that come.
    pub fn module(
        mut self,
        name: impl AsRef<str>,
        commands: Option<Vec<String>>,
        handler: Arc<dyn Handler>,
    ) -> Self {
        let added = self.registry.add_module(name.as_ref(), commands, &handler);
        self.note(added)
    }

    /// Serves one command, `MODULE.COMMAND`, with a function. The parameters are read into `P`; parameters that
    /// do not fit fail the step for good (code 65). The result must look like a JSON object, or `()` for none.
    /// A failure with code 75 means "not now".
    pub fn command<F, Fut, P, R>(mut self, name: impl AsRef<str>, run: F) -> Self
    where
        F: Fn(P, Job) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        P: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
    {
        let name = name.as_ref();
        let added = match name.split_once('.') {
            Some((module, command)) => {
                self.registry.add_command(module, command, Arc::new(TypedCommand::new(run)))
            }
            None => Err(Error::Invalid(format!("\"{name}\" names no command: write MODULE.COMMAND"))),
        };
        self.note(added)
    }

    /// How long a drain waits for what runs before it stops it; 30 s when left out.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// For how long the worker may be silent before its attempts are given to others, 1 s to 1 h; 10 s when left
    /// out.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = Some(lease);
        self
    }

    /// The worker.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first mistake: nothing to serve, a name that is none, two handlers for the same
    /// command, a concurrency of 0, a lease that the server does not grant, a queue that the broker cannot have.
    pub fn build(self) -> Result<Worker, Error> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let invalid = |message: &str| Err(Error::Invalid(message.to_owned()));
        if self.registry.is_empty() {
            return invalid("the worker serves no module: add one with `module` or `command`");
        }
        if self.settings.concurrency == 0 {
            return invalid("the worker's concurrency is 0: it could never take anything");
        }
        if self.settings.lease.is_some_and(|lease| !(1..=3600).contains(&lease.as_secs())) {
            return invalid("a lease lasts from 1 s to 1 h");
        }
        #[cfg(feature = "brokers")]
        super::queues::check(&self.work, &self.registry)?;
        Ok(Worker { work: self.work, settings: self.settings, registry: self.registry })
    }

    pub(super) fn note(mut self, added: Result<(), Error>) -> Self {
        if self.mistake.is_none() {
            self.mistake = added.err();
        }
        self
    }
}

/// The machine's name, or `localhost` where it is not told.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> WorkerBuilder {
        Worker::builder(Client::new("127.0.0.1:7700").unwrap())
    }

    async fn nothing(_params: serde_json::Value, _job: Job) -> Result<(), Failure> {
        Ok(())
    }

    #[test]
    fn mistakes_are_told_when_the_worker_is_built() {
        for (builder, words) in [
            (builder(), "serves no module"),
            (builder().command("mysql", nothing), "write MODULE.COMMAND"),
            (builder().command("m.c", nothing).command("m.c", nothing), "m.c has two handlers"),
            (builder().command("m.c", nothing).concurrency(0), "concurrency is 0"),
            (builder().command("m.c", nothing).lease(Duration::from_millis(900)), "1 s to 1 h"),
        ] {
            let message = builder.build().unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
        builder().command("m.c", nothing).build().unwrap();
    }
}
