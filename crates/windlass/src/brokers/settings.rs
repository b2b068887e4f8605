//! What the configuration says of brokers: which modules have their queues there.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use windlass_brokers::Queue;
use windlass_core::Name;
use windlass_engine::services::CourierSettings;

/// Where modules answer if nothing else is said.
pub(crate) const RESULTS_DEFAULT: &str = "windlass-results";

/// Steps that wait on a broker at once, if nothing else is said: enough for workers never to wait for them, few enough
/// for priorities, limits and pauses to hold.
const WINDOW_DEFAULT: u32 = 2_000;

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
        let url = self.0.split_once('?').map_or(&*self.0, |(url, _)| url);
        match (url.find("://"), url.rfind('@')) {
            (Some(scheme), Some(host)) if scheme < host => {
                write!(f, "{}://…@{}", &url[..scheme], &url[host + 1..])
            }
            _ => f.write_str(url),
        }
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
    pub(crate) fn sections(&self) -> BTreeMap<String, QueueSection> {
        self.queues.iter().map(|queue| (queue.courier.module.to_string(), queue.section())).collect()
    }
}

/// Reads the sections of a configuration file.
///
/// # Errors
/// When a name or a number cannot be used.
pub(crate) fn read(sections: BTreeMap<String, QueueSection>) -> anyhow::Result<BrokerSettings> {
    let read = |(module, section): (String, QueueSection)| {
        let place = format!("[queues.{module}]");
        offered(&module, section).with_context(|| format!("in the section {place}"))
    };
    Ok(BrokerSettings { queues: sections.into_iter().map(read).collect::<anyhow::Result<_>>()? })
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
    let results = Queue { name: results, kind: kind.clone() };
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
        Ok(read([(module.to_owned(), section)].into())?.queues.remove(0))
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
    fn what_cannot_be_used_is_named_with_its_section() {
        let error = |module, section| format!("{:#}", read_one(module, section).unwrap_err());
        let window = QueueSection { window: Some(0), ..section("redis://h") };
        assert!(error("mysql", window).contains("[queues.mysql]: `window` is 0"));
        let same = QueueSection { results: Some("mysql".to_owned()), ..section("redis://h") };
        assert!(error("mysql", same).contains("both \"mysql\""));
        assert!(error("my sql", section("redis://h")).contains("\"my sql\" is no name"));
    }
}
