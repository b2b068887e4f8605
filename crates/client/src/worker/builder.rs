//! Builds a worker.

use std::{future::Future, num::NonZero, sync::Arc, thread, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use windlass_api::WorkerInfo;

use super::{
    Failure, Handler, Job, Settings, Work, Worker,
    registry::Registry,
    secrets::{Secrets, WithSecrets},
    typed::TypedCommand,
};
use crate::{Client, Error};

/// How long a drain waits for running attempts before it stops them: the usual time limit of service
/// managers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The modules and settings of a worker. [`WorkerBuilder::build`] reports mistakes.
#[derive(Debug)]
#[must_use]
pub struct WorkerBuilder {
    pub(super) work: Work,
    settings: Settings,
    registry: Registry,
    secrets: Secrets,
    #[cfg(feature = "coordinators")]
    pub(super) exclusive: Option<super::exclusive::Exclusive>,
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
        Self {
            work,
            settings,
            registry: Registry::default(),
            secrets: Secrets::default(),
            #[cfg(feature = "coordinators")]
            exclusive: None,
            mistake: None,
        }
    }

    /// Its name in lists and logs; default: the host's name with the process id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.info.name = name.into();
        self
    }

    /// The name of its machine in lists; default: the host's own name.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.settings.info.host = host.into();
        self
    }

    /// The most attempts that may run concurrently, over all modules; default: the number of cores.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// Serves a module with one handler, for these commands or for all.
    pub fn module(
        mut self,
        name: impl AsRef<str>,
        commands: Option<Vec<String>>,
        handler: Arc<dyn Handler>,
    ) -> Self {
        let added = self.registry.add_module(name.as_ref(), commands, &handler);
        self.note(added)
    }

    /// Serves one command, `MODULE.COMMAND`, with a function. The parameters are parsed as `P`; parameters
    /// that do not fit are a final failure (code 65). The result must serialize to a JSON object, or be `()`
    /// for none. A failure with code 75 means "retry later".
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

    /// How long a drain waits for running attempts before it stops them; default: 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// How long the worker may be silent before other workers may claim its attempts, 1 s to 1 h; default: 10
    /// s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = Some(lease);
        self
    }

    /// Where it finds the values of secrets; default: nowhere, so that attempts whose parameters refer to secrets
    /// fail. Handlers get parameters with values in place of the references. In what they report, in results, errors,
    /// log and progress, the values are replaced by the references.
    pub fn secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = secrets;
        self
    }

    /// Builds the worker.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first mistake: no module, an invalid name, two handlers for the same
    /// command, a concurrency of 0, a lease outside of the server's limits, a queue that the broker does not
    /// support, a campaign that the coordinator does not support.
    pub fn build(self) -> Result<Worker, Error> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let invalid = |message: &str| Err(Error::Invalid(message.to_owned()));
        if self.registry.is_empty() {
            return invalid("the worker serves no module: add one with `module` or `command`");
        }
        if self.settings.concurrency == 0 {
            return invalid("the worker's concurrency is 0: use 1 or more");
        }
        if self.settings.lease.is_some_and(|lease| !(1..=3600).contains(&lease.as_secs())) {
            return invalid("invalid lease: use 1 s to 1 h");
        }
        #[cfg(feature = "brokers")]
        super::queues::check(&self.work, &self.registry)?;
        #[cfg(feature = "coordinators")]
        if let Some(exclusive) = &self.exclusive {
            exclusive.check()?;
        }
        let (mut registry, secrets) = (self.registry, Arc::new(self.secrets));
        registry.wrap(|handler| Arc::new(WithSecrets::new(handler, secrets.clone())));
        Ok(Worker {
            work: self.work,
            settings: self.settings,
            registry: Arc::new(registry),
            #[cfg(feature = "coordinators")]
            exclusive: self.exclusive,
        })
    }

    pub(super) fn note(mut self, added: Result<(), Error>) -> Self {
        if self.mistake.is_none() {
            self.mistake = added.err();
        }
        self
    }
}

/// The machine's name, or `localhost` if unknown.
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
