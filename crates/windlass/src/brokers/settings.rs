//! What the configuration says of brokers: which modules have their queues there.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_brokers::{Message, Queue};
use windlass_core::Name;
use windlass_engine::services::CourierSettings;

use crate::http::extract::SUBMIT_BYTES_MAX;

/// Where modules answer if nothing else is said.
pub(crate) const RESULTS_DEFAULT: &str = "windlass-results";

/// Steps that wait on a broker at once, if nothing else is said: enough for workers never to wait for them, few enough
/// for priorities, limits and pauses to hold.
const WINDOW_DEFAULT: u32 = 2_000;

/// The kind of queue whose readers understand nothing else.
const LIST: &str = "list";

/// The most of them.
const WINDOW_MAX: u32 = 100_000;

/// The section `[queues.MODULE]`: the module has its queue on a broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueSection {
    /// URL of the broker.
    pub(crate) broker: String,
    /// Its queue; the module's name if nothing else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// What kind of queue, where the broker has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The queue on which modules answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) results: Option<String>,
    /// Steps that wait on the broker at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<u32>,
}

/// A section `[[intake]]`: messages of a queue start tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IntakeSection {
    /// URL of the broker.
    pub(crate) broker: String,
    /// The queue.
    pub(crate) queue: String,
    /// What kind of queue, where the broker has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The flow of the tasks; without it each message is the document of `POST /v1/tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flow: Option<String>,
    /// Where in the message the parameters are, as a JSON pointer; the whole of it if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<String>,
    /// Where in the message its idempotency key is, as a JSON pointer; the message's id if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

/// Messages of a queue that start tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IntakeSettings {
    pub(crate) broker: BrokerUrl,
    pub(crate) queue: Queue,
    flow: Option<String>,
    params: Option<String>,
    key: Option<String>,
}

/// What a message asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TaskDocument {
    /// The document of `POST /v1/tasks`.
    pub(crate) text: String,
    /// What tells it from other messages of the queue.
    pub(crate) key: String,
}

impl IntakeSettings {
    /// The task that a message asks for.
    ///
    /// # Errors
    /// When it is not JSON, or has nothing where something is to be.
    pub(crate) fn document(&self, message: &Message) -> Result<TaskDocument, String> {
        if message.body.len() > SUBMIT_BYTES_MAX {
            return Err(format!("it has {} bytes, and may have {SUBMIT_BYTES_MAX}", message.body.len()));
        }
        let text = std::str::from_utf8(&message.body).map_err(|error| format!("it is no text: {error}"))?;
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        let at = |pointer: &str| {
            value
                .pointer(pointer)
                .ok_or_else(|| format!("it has nothing at {pointer}, where the configuration looks"))
        };
        let key = match self.key.as_deref().map(at).transpose()? {
            Some(Value::String(key)) => key.clone(),
            Some(other) => other.to_string(),
            None if message.id.is_empty() => {
                return Err(
                    "it has no id by which it could be told from others: set `key` in the configuration"
                        .to_owned(),
                );
            }
            None => message.id.clone(),
        };
        let Some(flow) = &self.flow else { return Ok(TaskDocument { text: text.to_owned(), key }) };
        // The whole of it goes as it came, digit for digit.
        let params = match &self.params {
            Some(pointer) => at(pointer)?.to_string(),
            None => text.to_owned(),
        };
        Ok(TaskDocument {
            text: format!(r#"{{"flow":{},"params":{params}}}"#, Value::from(flow.as_str())),
            key,
        })
    }

    fn section(&self) -> IntakeSection {
        let Self { broker, queue, flow, params, key } = self.clone();
        IntakeSection { broker: broker.to_string(), queue: queue.name, kind: queue.kind, flow, params, key }
    }
}

/// A broker's URL, which may have a password in it: shown without.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BrokerUrl(String);

impl BrokerUrl {
    /// The URL as it is to be used, with its password.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last @ first: what is before it may have any character in it, and is not shown.
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        let place = place.split_once('?').map_or(place, |(place, _)| place);
        let user = if user.is_some() { "…@" } else { "" };
        if scheme.is_empty() { f.write_str(place) } else { write!(f, "{scheme}://{user}{place}") }
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// All that a server does with brokers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BrokerSettings {
    /// Modules that have their queues there.
    pub(crate) queues: Vec<OfferedQueue>,
    /// Queues whose messages start tasks.
    pub(crate) intake: Vec<IntakeSettings>,
}

/// A module that has its queue on a broker.
#[derive(Debug, Clone)]
pub(crate) struct OfferedQueue {
    pub(crate) broker: BrokerUrl,
    pub(crate) courier: CourierSettings,
    pub(crate) results: Queue,
}

impl PartialEq for OfferedQueue {
    fn eq(&self, other: &Self) -> bool {
        (&self.broker, self.section()) == (&other.broker, other.section())
    }
}

impl Eq for OfferedQueue {}

impl OfferedQueue {
    /// As a section of a configuration file, without the password.
    fn section(&self) -> QueueSection {
        QueueSection {
            broker: self.broker.to_string(),
            queue: Some(self.courier.queue.name.clone()),
            kind: self.courier.queue.kind.clone(),
            results: Some(self.results.name.clone()),
            window: Some(self.courier.window),
        }
    }
}

impl BrokerSettings {
    /// As sections of a configuration file, without passwords.
    pub(crate) fn sections(&self) -> (BTreeMap<String, QueueSection>, Vec<IntakeSection>) {
        let queues = self.queues.iter().map(|queue| (queue.courier.module.to_string(), queue.section()));
        (queues.collect(), self.intake.iter().map(IntakeSettings::section).collect())
    }
}

/// Reads the sections of a configuration file.
///
/// # Errors
/// When a name or a number cannot be used.
pub(crate) fn read(
    queues: BTreeMap<String, QueueSection>,
    intake: Vec<IntakeSection>,
) -> anyhow::Result<BrokerSettings> {
    let read = |(module, section): (String, QueueSection)| {
        let place = format!("[queues.{module}]");
        offered(&module, section).with_context(|| format!("in the section {place}"))
    };
    let settings = BrokerSettings {
        queues: queues.into_iter().map(read).collect::<anyhow::Result<_>>()?,
        intake: intake.into_iter().map(taken_in).collect::<anyhow::Result<_>>()?,
    };
    check_uses(&settings)?;
    Ok(settings)
}

/// Refuses a queue that is used for two things: each would take what is the other's.
fn check_uses(settings: &BrokerSettings) -> anyhow::Result<()> {
    let mut uses: BTreeMap<(&BrokerUrl, &str), String> = BTreeMap::new();
    let of_queues = settings.queues.iter().flat_map(|queue| {
        let steps = format!("the steps of {}", queue.courier.module);
        [(&queue.broker, &queue.courier.queue, steps), (&queue.broker, &queue.results, "answers".to_owned())]
    });
    let of_intake = settings
        .intake
        .iter()
        .map(|intake| (&intake.broker, &intake.queue, "messages that start tasks".to_owned()));
    for (broker, queue, used) in of_queues.chain(of_intake) {
        let before = uses.entry((broker, queue.name.as_str())).or_insert_with(|| used.clone());
        ensure!(
            *before == used,
            "the queue {queue} of {broker} is configured for {before} and for {used}: give each a queue of its own"
        );
    }
    Ok(())
}

fn taken_in(section: IntakeSection) -> anyhow::Result<IntakeSettings> {
    let IntakeSection { broker, queue, kind, flow, params, key } = section;
    for (name, pointer) in [("params", &params), ("key", &key)] {
        ensure!(
            pointer.as_deref().is_none_or(|pointer| pointer.starts_with('/')),
            "in a section [[intake]] of {queue}: `{name}` is a JSON pointer and begins with a slash, such as /data/order"
        );
    }
    ensure!(
        flow.is_some() || params.is_none(),
        "in a section [[intake]] of {queue}: `params` goes with `flow`; without it each message is a whole document of POST /v1/tasks"
    );
    Ok(IntakeSettings { broker: BrokerUrl(broker), queue: Queue { name: queue, kind }, flow, params, key })
}

fn offered(module: &str, section: QueueSection) -> anyhow::Result<OfferedQueue> {
    let QueueSection { broker, queue, kind, results, window } = section;
    let name =
        Name::new(module).map_err(|error| anyhow::anyhow!("{module:?} is no name of a module: {error}"))?;
    let window = window.unwrap_or(WINDOW_DEFAULT);
    ensure!((1..=WINDOW_MAX).contains(&window), "`window` is {window}, and must be from 1 to {WINDOW_MAX}");
    let queue = queue.unwrap_or_else(|| module.to_owned());
    let results = results.unwrap_or_else(|| RESULTS_DEFAULT.to_owned());
    ensure!(
        queue != results,
        "`queue` and `results` are both {queue:?}: steps go out on one, and answers come in on the other"
    );
    // Answers are read by this program alone, so their queue is of the kind that the product recommends, unless steps are
    // where nothing but lists is understood.
    let results = Queue { name: results, kind: kind.clone().filter(|kind| kind == LIST) };
    let queue = Queue { name: queue, kind };
    Ok(OfferedQueue {
        broker: BrokerUrl(broker),
        courier: CourierSettings { module: name, queue, window },
        results,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(broker: &str) -> QueueSection {
        QueueSection { broker: broker.to_owned(), queue: None, kind: None, results: None, window: None }
    }

    fn read_one(module: &str, section: QueueSection) -> anyhow::Result<OfferedQueue> {
        Ok(read([(module.to_owned(), section)].into(), Vec::new())?.queues.remove(0))
    }

    #[test]
    fn what_is_not_said_is_the_usual() {
        let queue = read_one("mysql", section("redis://127.0.0.1/0")).unwrap();
        assert_eq!((queue.courier.queue.name.as_str(), queue.courier.window), ("mysql", 2_000));
        assert_eq!(queue.results.name, "windlass-results");
    }

    #[test]
    fn passwords_are_not_shown() {
        let queue = read_one("mysql", section("amqp://me:secret@host:5672/vhost")).unwrap();
        let shown = format!("{queue:?} {:?}", queue.section());
        assert!(!shown.contains("secret") && shown.contains("host:5672"), "{shown}");
        assert_eq!(queue.broker.as_str(), "amqp://me:secret@host:5672/vhost");
    }

    #[test]
    fn no_part_of_a_password_is_shown() {
        for url in ["redis://u:p?ss@host:1", "redis://u:p@ss@host:1", "redis://u:p/ss@host:1?x=y"] {
            assert_eq!(BrokerUrl(url.to_owned()).to_string(), "redis://…@host:1");
        }
        assert_eq!(BrokerUrl("redis://host:1/0".to_owned()).to_string(), "redis://host:1/0");
    }

    #[test]
    fn a_queue_is_for_one_thing() {
        let both = |one: QueueSection, other: QueueSection| {
            read([("one".to_owned(), one), ("other".to_owned(), other)].into(), Vec::new())
        };
        let on = |queue: &str| QueueSection { queue: Some(queue.to_owned()), ..section("redis://h") };
        assert!(both(on("a"), on("b")).is_ok(), "answers of both come on one queue");
        let error = both(on("a"), on("a")).unwrap_err().to_string();
        assert!(error.contains("the steps of one and for the steps of other"), "{error}");
        assert!(both(on("windlass-results"), on("b")).is_err());
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_section() {
        let error = |module, section| format!("{:#}", read_one(module, section).unwrap_err());
        let window = QueueSection { window: Some(0), ..section("redis://h") };
        assert!(error("mysql", window).contains("[queues.mysql]: `window` is 0"));
        let same = QueueSection { results: Some("mysql".to_owned()), ..section("redis://h") };
        assert!(error("mysql", same).contains("both \"mysql\""));
        assert!(error("my sql", section("redis://h")).contains("\"my sql\" is no name"));
    }

    fn intake(flow: Option<&str>, params: Option<&str>, key: Option<&str>) -> anyhow::Result<IntakeSettings> {
        taken_in(IntakeSection {
            broker: "redis://h".to_owned(),
            queue: "orders".to_owned(),
            kind: None,
            flow: flow.map(str::to_owned),
            params: params.map(str::to_owned),
            key: key.map(str::to_owned),
        })
    }

    #[test]
    fn a_message_is_a_document_or_the_parameters_of_a_flow() {
        let message = Message::new("7-0", "", r#"{"id":12,"data":{"disk":"a"}}"#);
        let document = |settings: IntakeSettings| settings.document(&message).unwrap();
        let whole = document(intake(None, None, None).unwrap());
        assert_eq!((whole.text.as_bytes(), whole.key.as_str()), (&*message.body, "7-0"));
        let part = document(intake(Some("ship"), Some("/data"), Some("/id")).unwrap());
        assert_eq!(part.text, r#"{"flow":"ship","params":{"disk":"a"}}"#);
        assert_eq!(part.key, "12");
    }

    #[test]
    fn what_is_not_where_it_is_looked_for_is_said() {
        let settings = intake(Some("ship"), Some("/order"), None).unwrap();
        let error = settings.document(&Message::new("1", "", "{}")).unwrap_err();
        assert!(error.contains("nothing at /order"), "{error}");
        let whole = intake(Some("ship"), None, None).unwrap();
        let digits = whole.document(&Message::new("1", "", r#"{"id":12345678901234567890123}"#)).unwrap();
        assert!(digits.text.contains("12345678901234567890123"), "{digits:?}");
        assert!(whole.document(&Message::new("", "", "{}")).unwrap_err().contains("set `key`"));
        let error = settings.document(&Message::new("1", "", "{")).unwrap_err();
        assert!(error.contains("no JSON"), "{error}");
        assert!(
            intake(Some("ship"), Some("data"), None).unwrap_err().to_string().contains("begins with a slash")
        );
        assert!(intake(None, Some("/data"), None).unwrap_err().to_string().contains("goes with `flow`"));
    }
}
