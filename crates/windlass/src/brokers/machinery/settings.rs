//! The section `[machinery]` of the configuration.

use std::{collections::BTreeSet, time::Duration};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_api::Span;
use windlass_brokers::{Binding, Queue, ResultSettings, result_backend, signature_broker};
use windlass_core::{Name, reserved_module};

use crate::brokers::url::BrokerUrl;

/// The place of the section, for error messages.
pub(in crate::brokers) const PLACE: &str = "in the section [machinery]";

/// The default queue of the library.
const QUEUE_DEFAULT: &str = "machinery_tasks";

/// The default exchange of the library.
pub(in crate::brokers) const EXCHANGE_DEFAULT: &str = "machinery_exchange";

/// The default binding key of the library.
const BINDING_KEY_DEFAULT: &str = "machinery_task";

/// The default of `tasks_uuid_separator`.
const SEPARATOR_DEFAULT: &str = ",";

/// The default of `module`.
const MODULE_DEFAULT: &str = "machinery";

/// How long the library keeps states by default.
const RESULTS_EXPIRE_IN_DEFAULT: Span = Span::from_ms(3_600_000);

/// The default of `timeout`: the library has no timeouts.
const TIMEOUT_DEFAULT: Span = Span::from_ms(3_600_000);

/// The default queue of results of workers that use the library.
pub(in crate::brokers) const RESULTS_DEFAULT: &str = "windlass-machinery-results";

/// The section `[machinery]`: signatures of the Go library machinery start tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachinerySection {
    /// URL of the broker, as clients have it.
    pub(crate) broker: String,
    /// URL of the result backend. Required with SQS. Default otherwise: the broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    /// The queues, the default queue first. Default: `machinery_tasks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) queues: Vec<String>,
    /// The exchange to which clients of RabbitMQ send. Default: `machinery_exchange`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exchange: Option<String>,
    /// The routing key of signatures that name none, with RabbitMQ. Default: `machinery_task`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) binding_key: Option<String>,
    /// The module whose workers run the tasks. Default: `machinery`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) module: Option<String>,
    /// How long an attempt may take. Default: 1 hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Span>,
    /// How long states are kept. Default: 1 hour, as in the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) results_expire_in: Option<Span>,
    /// Between the UUIDs of a group, in a table. Default: a comma.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tasks_uuid_separator: Option<String>,
    /// What happens where the library loses something. Default: `safe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
}

/// What happens where the library loses something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// A chord with a failed task fails, and its documents are kept while it is open.
    Safe,
    /// As in the library: nobody hears of a chord with a failed task, and its documents expire.
    Strict,
}

/// How signatures of the Go library machinery start tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachinerySettings {
    pub(crate) broker: BrokerUrl,
    pub(super) backend: BrokerUrl,
    queues: Vec<String>,
    /// The kind of the queues; `None` = it follows from their names.
    kind: Option<&'static str>,
    /// What the default queue gets of the exchange, where the broker has exchanges.
    binding: Option<Binding>,
    pub(super) module: Name,
    pub(super) timeout: Span,
    results_expire_in: Span,
    separator: String,
    pub(super) mode: Mode,
}

impl MachinerySettings {
    /// Reads the section.
    ///
    /// # Errors
    /// When a value is invalid.
    pub(crate) fn read(section: MachinerySection) -> anyhow::Result<Self> {
        let MachinerySection {
            broker,
            backend,
            queues,
            exchange,
            binding_key,
            module,
            timeout,
            results_expire_in,
            tasks_uuid_separator,
            mode,
        } = section;
        let module = module.unwrap_or_else(|| MODULE_DEFAULT.to_owned());
        let name = Name::new(&module).map_err(|error| anyhow::anyhow!("`module`: {error}"))?;
        ensure!(!module.contains('.'), "`module` is {module:?}: a module has no dot in its name");
        ensure!(
            reserved_module(&module).is_none(),
            "`module`: `{module}` is reserved: no worker serves it, so give it another name"
        );
        let binding = Binding {
            exchange: exchange.clone().unwrap_or_else(|| EXCHANGE_DEFAULT.to_owned()),
            key: binding_key.clone().unwrap_or_else(|| BINDING_KEY_DEFAULT.to_owned()),
        };
        let signatures = signature_broker(&broker, &binding.exchange)
            .map_err(|error| anyhow::anyhow!("`broker`: {error}"))?;
        for (name, given) in [("exchange", exchange), ("binding_key", binding_key)] {
            ensure!(
                signatures.has_exchange() || given.is_none(),
                "`{name}` is for RabbitMQ: other brokers have no exchanges, so remove it"
            );
        }
        let queues = if queues.is_empty() { vec![QUEUE_DEFAULT.to_owned()] } else { queues };
        ensure!(queues.iter().all(|queue| !queue.is_empty()), "`queues` has an empty name: give it one");
        let distinct: BTreeSet<&String> = queues.iter().collect();
        ensure!(distinct.len() == queues.len(), "`queues` names a queue twice: name it once");
        let timeout = timeout.unwrap_or(TIMEOUT_DEFAULT);
        ensure!(timeout.ms > 0, "`timeout` is 0: no task could end in time");
        let results_expire_in = results_expire_in.unwrap_or(RESULTS_EXPIRE_IN_DEFAULT);
        ensure!(results_expire_in.ms >= 1_000, "`results_expire_in` is {results_expire_in}: use at least 1s");
        ensure!(
            backend.is_some() || !broker.starts_with("sqs"),
            "`backend` is missing: SQS keeps no results, so give the URL of Redis, RabbitMQ or MySQL"
        );
        let backend = backend.unwrap_or_else(|| broker.clone());
        let separator = tasks_uuid_separator.unwrap_or_else(|| SEPARATOR_DEFAULT.to_owned());
        ensure!(!separator.is_empty(), "`tasks_uuid_separator` is empty: use a text that no UUID has");
        let keep = Duration::from_millis(results_expire_in.ms);
        result_backend(&backend, ResultSettings { keep, separator: &separator })
            .map_err(|error| anyhow::anyhow!("`backend`: {error}"))?;
        Ok(Self {
            broker: BrokerUrl::new(broker),
            backend: BrokerUrl::new(backend),
            queues,
            kind: signatures.queue_kind(),
            binding: signatures.has_exchange().then_some(binding),
            module: name,
            timeout,
            results_expire_in,
            separator,
            mode: mode.unwrap_or(Mode::Safe),
        })
    }

    /// The settings as a section of a configuration file, without passwords.
    pub(crate) fn section(&self) -> MachinerySection {
        MachinerySection {
            broker: self.broker.to_string(),
            backend: Some(self.backend.to_string()),
            queues: self.queues.clone(),
            exchange: self.binding.as_ref().map(|binding| binding.exchange.clone()),
            binding_key: self.binding.as_ref().map(|binding| binding.key.clone()),
            module: Some(self.module.to_string()),
            timeout: Some(self.timeout),
            results_expire_in: Some(self.results_expire_in),
            tasks_uuid_separator: Some(self.separator.clone()),
            mode: Some(self.mode),
        }
    }

    /// The queues whose signatures start tasks.
    pub(in crate::brokers) fn queues(&self) -> Vec<Queue> {
        let queue = |name: &String| Queue { name: name.clone(), kind: self.kind.map(str::to_owned) };
        self.queues.iter().map(queue).collect()
    }

    /// What a queue gets of the exchange: the default queue those that name no queue, others those that name them.
    pub(super) fn binding(&self, queue: &Queue) -> Option<Binding> {
        let default = self.binding.clone()?;
        let is_default = queue.name == self.default_queue();
        Some(if is_default { default } else { Binding { key: queue.name.clone(), ..default } })
    }

    /// The exchange to which signatures are sent, where the broker has exchanges.
    pub(super) fn exchange(&self) -> &str {
        self.binding.as_ref().map_or("", |binding| binding.exchange.as_str())
    }

    /// The queue of signatures that name none.
    pub(super) fn default_queue(&self) -> &str {
        self.queues.first().map_or(QUEUE_DEFAULT, String::as_str)
    }

    /// Whether signatures of this queue start tasks here.
    pub(super) fn has_queue(&self, queue: &str) -> bool {
        let is_key = self.binding.as_ref().is_some_and(|binding| binding.key == queue);
        queue.is_empty() || is_key || self.queues.iter().any(|own| own == queue)
    }

    /// What clients of the result backend have.
    pub(super) fn of_results(&self) -> ResultSettings<'_> {
        ResultSettings { keep: self.keep(), separator: &self.separator }
    }

    /// How long states are kept.
    pub(super) fn keep(&self) -> Duration {
        Duration::from_millis(self.results_expire_in.ms)
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<MachinerySettings, String> {
        let section: MachinerySection = toml::from_str(text).map_err(|error| error.to_string())?;
        MachinerySettings::read(section).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_is_not_said_is_as_in_the_library() {
        let settings = read("broker = \"redis://:secret@127.0.0.1:6379\"").unwrap();
        assert_eq!(settings.default_queue(), "machinery_tasks");
        assert_eq!((settings.module.as_str(), settings.mode), ("machinery", Mode::Safe));
        assert_eq!(settings.keep(), Duration::from_secs(3600));
        assert!(
            settings.has_queue("") && settings.has_queue("machinery_tasks") && !settings.has_queue("other")
        );
        let shown = format!("{settings:?} {:?}", settings.section());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    #[cfg(feature = "rabbitmq")]
    fn signatures_come_through_an_exchange_where_there_are_exchanges() {
        let settings = read("broker = \"amqp://h\"\nqueues = [\"a\", \"b\"]\nexchange = \"e\"").unwrap();
        let bound =
            settings.queues().iter().map(|queue| settings.binding(queue).unwrap()).collect::<Vec<_>>();
        let binding = |key: &str| Binding { exchange: "e".to_owned(), key: key.to_owned() };
        assert_eq!(bound, [binding("machinery_task"), binding("b")]);
        assert!(settings.has_queue("machinery_task") && settings.has_queue("b"));
        let error = read("broker = \"amqp://h\"\nexchange = \"\"").unwrap_err();
        assert!(error.contains("cannot be an exchange"), "{error}");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let error = |more: &str| read(&format!("broker = \"redis://h\"\n{more}")).unwrap_err();
        let kafka = read("broker = \"kafka://h\"").unwrap_err();
        assert!(
            kafka.contains("`broker`: the broker of machinery must be Redis or RabbitMQ or SQS"),
            "{kafka}"
        );
        let mongo = error("backend = \"mongodb://h\"");
        assert!(mongo.contains("`backend`: the result backend of machinery must be Redis or"), "{mongo}");
        assert!(error("binding_key = \"k\"").contains("`binding_key` is for RabbitMQ"));
        assert!(error("module = \"a.b\"").contains("no dot"));
        assert!(error("module = \"flow\"").contains("reserved"));
        assert!(error("queues = [\"\"]").contains("`queues` has an empty name"));
        assert!(error("timeout = \"0s\"").contains("`timeout` is 0"));
        assert!(error("results_expire_in = \"1ms\"").contains("use at least 1s"));
        assert!(error("mode = \"lossy\"").contains("unknown variant `lossy`"));
    }
}
