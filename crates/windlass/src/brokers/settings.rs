//! The configuration of brokers: which modules have their queues there.

use std::collections::BTreeMap;
use utoipa::ToSchema;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use windlass_brokers::{Queue, signature_broker};
use windlass_core::{Name, reserved_module};
use windlass_engine::services::QueuePublisherSettings;

use super::{
    events::{EventsSection, EventsSettings},
    leader::{LeaderSection, LeaderSettings},
    machinery::{self, MachinerySection, MachinerySettings},
    pointer::Pointer,
    url::BrokerUrl,
    uses,
};

/// The default queue for results of modules.
pub(crate) const RESULTS_DEFAULT: &str = "windlass-results";

/// The default number of steps that wait on a broker at once: high enough to keep workers busy, low enough
/// for priorities, limits and pauses to take effect.
const WINDOW_DEFAULT: u32 = 2_000;

/// The kind of queue for readers that support nothing but lists.
const LIST: &str = "list";

/// The largest `window`.
const WINDOW_MAX: u32 = 100_000;

/// The place of the section `[events]`, for error messages.
pub(super) const PLACE_OF_EVENTS: &str = "in the section [events]";

/// The section `[queues.MODULE]`: the module has its queue on a broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueSection {
    /// URL of the broker.
    pub(crate) broker: String,
    /// The name of its queue. Default: the module's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// The kind of queue, where the broker has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The queue for the module's results. Default: `windlass-results`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) results: Option<String>,
    /// The number of steps that may wait on the broker at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<u32>,
    /// The format of its messages. Default: the classic document of a step.
    #[serde(default, skip_serializing_if = "MessageFormat::is_step")]
    pub(crate) message: MessageFormat,
}

/// The format of the messages of a module's queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MessageFormat {
    /// The classic document of a step.
    #[default]
    Step,
    /// The event of a job: `{"jobId","name","value"}`.
    Job,
    /// A signature, for workers that use the Go library machinery.
    Machinery,
}

impl MessageFormat {
    fn is_step(&self) -> bool {
        *self == Self::Step
    }
}

/// A section `[[intake]]`: messages of a queue start tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IntakeSection {
    /// URL of the broker.
    pub(crate) broker: String,
    /// The queue.
    pub(crate) queue: String,
    /// The kind of queue, where the broker has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The flow of the tasks; without it each message is the document of `POST /v1/tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flow: Option<String>,
    /// The trigger that each message fires, in place of a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trigger: Option<String>,
    /// JSON pointer to the parameters in the message. Default: the whole message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<String>,
    /// JSON pointer to the idempotency key in the message. Default: the message's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Only the elected server reads the queue. Default: all servers share its messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leader: Option<LeaderSection>,
}

/// Messages of a queue that start tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IntakeSettings {
    pub(crate) broker: BrokerUrl,
    pub(crate) queue: Queue,
    pub(super) flow: Option<String>,
    pub(super) trigger: Option<Name>,
    pub(super) params: Option<Pointer>,
    pub(super) key: Option<Pointer>,
    pub(super) leader: Option<LeaderSettings>,
}

impl IntakeSettings {
    fn section(&self) -> IntakeSection {
        let Self { broker, queue, flow, trigger, params, key, leader } = self;
        let text = |pointer: &Option<Pointer>| pointer.as_ref().map(|pointer| pointer.as_str().to_owned());
        IntakeSection {
            broker: broker.to_string(),
            queue: queue.name.clone(),
            kind: queue.kind.clone(),
            flow: flow.clone(),
            trigger: trigger.as_ref().map(Name::to_string),
            params: text(params),
            key: text(key),
            leader: leader.as_ref().map(LeaderSettings::section),
        }
    }
}

/// The place of a module's section, for error messages.
pub(super) fn place_of_queue(module: &str) -> String {
    format!("in the section [queues.{module}]")
}

/// The place of a section `[[intake]]`, for error messages.
pub(super) fn place_of_intake(queue: &str) -> String {
    format!("in a section [[intake]] of {queue}")
}

/// Everything that a server does with brokers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BrokerSettings {
    /// Modules that have their queues there.
    pub(crate) queues: Vec<OfferedQueue>,
    /// Queues whose messages start tasks.
    pub(crate) intake: Vec<IntakeSettings>,
    /// Where events of tasks are published.
    pub(crate) events: Option<EventsSettings>,
    /// Signatures of machinery that start tasks.
    pub(crate) machinery: Option<MachinerySettings>,
}

/// A module that has its queue on a broker.
#[derive(Debug, Clone)]
pub(crate) struct OfferedQueue {
    pub(crate) broker: BrokerUrl,
    pub(crate) publisher: QueuePublisherSettings,
    pub(super) format: MessageFormat,
}

impl PartialEq for OfferedQueue {
    fn eq(&self, other: &Self) -> bool {
        (&self.broker, self.section()) == (&other.broker, other.section())
    }
}

impl Eq for OfferedQueue {}

impl OfferedQueue {
    /// The settings as a section of a configuration file, without the password.
    fn section(&self) -> QueueSection {
        QueueSection {
            broker: self.broker.to_string(),
            queue: Some(self.publisher.queue.name.clone()),
            kind: self.publisher.queue.kind.clone(),
            results: Some(self.publisher.results.name.clone()),
            window: Some(self.publisher.window),
            message: self.format,
        }
    }
}

impl BrokerSettings {
    /// Whether events of tasks are kept until they are announced.
    pub(crate) fn announces(&self) -> bool {
        self.events.is_some() || self.machinery.is_some()
    }

    /// The settings as sections of a configuration file, without passwords.
    pub(crate) fn sections(&self) -> (BTreeMap<String, QueueSection>, Vec<IntakeSection>) {
        let queues = self.queues.iter().map(|queue| (queue.publisher.module.to_string(), queue.section()));
        (queues.collect(), self.intake.iter().map(IntakeSettings::section).collect())
    }
}

/// Reads the sections of a configuration file.
///
/// # Errors
/// When a name or a number is invalid.
pub(crate) fn read(
    queues: BTreeMap<String, QueueSection>,
    intake: Vec<IntakeSection>,
    events: Option<EventsSection>,
    machinery: Option<MachinerySection>,
) -> anyhow::Result<BrokerSettings> {
    let read = |(module, section): (String, QueueSection)| {
        offered(&module, section).with_context(|| place_of_queue(&module))
    };
    let settings = BrokerSettings {
        queues: queues.into_iter().map(read).collect::<anyhow::Result<_>>()?,
        intake: intake.into_iter().map(taken_in).collect::<anyhow::Result<_>>()?,
        events: events.map(EventsSettings::read).transpose().context(PLACE_OF_EVENTS)?,
        machinery: machinery.map(MachinerySettings::read).transpose().context(machinery::PLACE)?,
    };
    uses::check(&settings)?;
    Ok(settings)
}

/// Reads a section `[[intake]]`.
///
/// # Errors
/// When a name or a pointer is invalid, `flow` and `trigger` are both set, or `params` is set without one of them.
pub(super) fn taken_in(section: IntakeSection) -> anyhow::Result<IntakeSettings> {
    let IntakeSection { broker, queue, kind, flow, trigger, params, key, leader } = section;
    let place = place_of_intake(&queue);
    let pointer = |name: &str, text: Option<String>| {
        let parse = |text: String| {
            Pointer::parse(&text)
                .map_err(|why| anyhow::anyhow!("{place}: `{name}` is {text:?}, and a JSON pointer {why}"))
        };
        text.map(parse).transpose()
    };
    let (params, key) = (pointer("params", params)?, pointer("key", key)?);
    ensure!(
        flow.is_none() || trigger.is_none(),
        "{place}: `flow` and `trigger` are both set: a trigger names its flows itself, so remove `flow`"
    );
    ensure!(
        flow.is_some() || trigger.is_some() || params.is_none(),
        "{place}: `params` needs `flow` or `trigger`: without them each message is a whole document of POST /v1/tasks"
    );
    if let Some(flow) = &flow {
        Name::new(flow).map_err(|error| anyhow::anyhow!("{place}: `flow`: {error}"))?;
    }
    let name =
        |trigger: String| Name::new(&trigger).map_err(|error| anyhow::anyhow!("{place}: `trigger`: {error}"));
    let trigger = trigger.map(name).transpose()?;
    let leader =
        leader.map(LeaderSettings::read).transpose().with_context(|| format!("{place}: `leader`"))?;
    Ok(IntakeSettings {
        broker: BrokerUrl::new(broker),
        queue: Queue { name: queue, kind },
        flow,
        trigger,
        params,
        key,
        leader,
    })
}

/// The kind of the queues of workers that use the library machinery; `None` = it follows from their names.
fn machinery_kind(broker: &str, kind: Option<String>) -> anyhow::Result<Option<String>> {
    let signatures = signature_broker(broker, machinery::EXCHANGE_DEFAULT)
        .map_err(|error| anyhow::anyhow!("`broker`: {error}"))?;
    let needed = signatures.queue_kind();
    if let Some(kind) = kind.filter(|kind| needed != Some(kind)) {
        match needed {
            Some(needed) => {
                bail!("`kind` is {kind:?}: with `message = \"machinery\"` it is {needed}, so leave it out")
            }
            None => {
                bail!("`kind` is {kind:?}: in SQS the name of the queue decides the kind, so leave it out")
            }
        }
    }
    Ok(needed.map(str::to_owned))
}

fn offered(module: &str, section: QueueSection) -> anyhow::Result<OfferedQueue> {
    let QueueSection { broker, queue, kind, results, window, message: format } = section;
    let name = Name::new(module)
        .map_err(|error| anyhow::anyhow!("{module:?} is not a name of a module: {error}"))?;
    ensure!(
        reserved_module(module).is_none(),
        "the module `{module}` is reserved: no worker serves it, so give it another name"
    );
    let window = window.unwrap_or(WINDOW_DEFAULT);
    ensure!((1..=WINDOW_MAX).contains(&window), "`window` is {window}: use 1 to {WINDOW_MAX}");
    let queue = queue.unwrap_or_else(|| module.to_owned());
    let is_machinery = format == MessageFormat::Machinery;
    let results_default = if is_machinery { machinery::RESULTS_DEFAULT } else { RESULTS_DEFAULT };
    let results = results.unwrap_or_else(|| results_default.to_owned());
    ensure!(
        !(is_machinery && broker.starts_with("sqs") && results.ends_with(".fifo")),
        "`results` is {results:?}: workers of the library machinery cannot send what follows a task to a FIFO queue, so \
         name a standard queue"
    );
    let kind = if is_machinery { machinery_kind(&broker, kind)? } else { kind };
    ensure!(
        queue != results,
        "`queue` and `results` are both {queue:?}: steps and results need separate queues"
    );
    // Only this program reads results, so their queue has the kind that the product recommends. The exception
    // is a module on a list: it may support nothing but lists. Workers of machinery send results to a list, too.
    let results = Queue { name: results, kind: kind.clone().filter(|kind| kind == LIST || is_machinery) };
    let queue = Queue { name: queue, kind };
    Ok(OfferedQueue {
        broker: BrokerUrl::new(broker),
        publisher: QueuePublisherSettings { module: name, queue, results, window },
        format,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(broker: &str) -> QueueSection {
        QueueSection {
            broker: broker.to_owned(),
            queue: None,
            kind: None,
            results: None,
            window: None,
            message: MessageFormat::Step,
        }
    }

    fn read_one(module: &str, section: QueueSection) -> anyhow::Result<OfferedQueue> {
        Ok(read([(module.to_owned(), section)].into(), Vec::new(), None, None)?.queues.remove(0))
    }

    #[test]
    fn what_is_not_said_is_the_usual() {
        let queue = read_one("mysql", section("redis://127.0.0.1/0")).unwrap();
        assert_eq!((queue.publisher.queue.name.as_str(), queue.publisher.window), ("mysql", 2_000));
        assert_eq!(queue.publisher.results.name, "windlass-results");
    }

    #[test]
    fn passwords_are_not_shown() {
        let queue = read_one("mysql", section("amqp://me:secret@host:5672/vhost")).unwrap();
        let shown = format!("{queue:?} {:?}", queue.section());
        assert!(!shown.contains("secret") && shown.contains("host:5672"), "{shown}");
        assert_eq!(queue.broker.as_str(), "amqp://me:secret@host:5672/vhost");
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_section() {
        let error = |module, section| format!("{:#}", read_one(module, section).unwrap_err());
        let window = QueueSection { window: Some(0), ..section("redis://h") };
        assert!(error("mysql", window).contains("[queues.mysql]: `window` is 0"));
        let same = QueueSection { results: Some("mysql".to_owned()), ..section("redis://h") };
        assert!(error("mysql", same).contains("both \"mysql\""));
        assert!(error("my sql", section("redis://h")).contains("\"my sql\" is not a name"));
        assert!(error("flow", section("redis://h")).contains("[queues.flow]: the module `flow` is reserved"));
    }

    fn intake(queue: &str) -> IntakeSection {
        let (broker, queue) = ("redis://h".to_owned(), queue.to_owned());
        IntakeSection {
            broker,
            queue,
            kind: None,
            flow: None,
            trigger: None,
            params: None,
            key: None,
            leader: None,
        }
    }

    #[test]
    fn flows_and_pointers_are_checked_when_the_configuration_is_read() {
        let error = |section| taken_in(section).unwrap_err().to_string();
        let ship = || IntakeSection { flow: Some("ship".to_owned()), ..intake("orders") };
        let params = error(IntakeSection { params: Some("data".to_owned()), ..ship() });
        assert!(params.contains("[[intake]] of orders: `params`") && params.contains("begins with a slash"));
        let key = error(IntakeSection { key: Some("/a~2".to_owned()), ..ship() });
        assert!(key.contains("`key` is \"/a~2\"") && key.contains("~0"), "{key}");
        let params = IntakeSection { params: Some("/data".to_owned()), ..intake("orders") };
        assert!(error(params).contains("needs `flow`"));
        let flow = error(IntakeSection { flow: Some("bad flow!".to_owned()), ..intake("orders") });
        assert!(flow.contains("[[intake]] of orders: `flow`: invalid name \"bad flow!\""), "{flow}");
        let both = IntakeSection { params: Some("/a~1b".to_owned()), key: Some("/id".to_owned()), ..ship() };
        assert_eq!(taken_in(both.clone()).unwrap().section(), both, "it is shown as it was written");
    }
}
