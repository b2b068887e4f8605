//! The section `[events]` of the configuration.

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_brokers::Topic;

use crate::brokers::url::BrokerUrl;

/// The default `source`: a relative reference.
const SOURCE_DEFAULT: &str = "windlass";

/// The default of `keep`.
const KEEP_DEFAULT: u64 = 1_000_000;

/// The section `[events]`: where events of tasks are published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsSection {
    /// URL of the broker.
    pub(crate) broker: String,
    /// The topic, stream, exchange or queue.
    pub(crate) topic: String,
    /// The kind of topic, where the broker has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// `source` of the CloudEvents: distinguishes the tasks of this store from those of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// The number of messages to keep at least, on a broker that would keep all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep: Option<u64>,
}

/// Where and how events of tasks are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventsSettings {
    pub(crate) broker: BrokerUrl,
    pub(crate) topic: Topic,
    pub(crate) source: String,
}

impl EventsSettings {
    /// Reads the section.
    ///
    /// # Errors
    /// When a value is invalid.
    pub(crate) fn read(section: EventsSection) -> anyhow::Result<Self> {
        let EventsSection { broker, topic, kind, source, keep } = section;
        let keep = keep.unwrap_or(KEEP_DEFAULT);
        ensure!(keep > 0, "`keep` is 0, so the broker would drop every message at once: use at least 1");
        let source = source.unwrap_or_else(|| SOURCE_DEFAULT.to_owned());
        ensure!(!source.is_empty(), "`source` is empty: each CloudEvent needs one");
        let is_reference = source.chars().all(|c| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c));
        ensure!(is_reference, "`source` is {source:?}: use a URI or a relative reference");
        Ok(Self { broker: BrokerUrl::new(broker), topic: Topic { name: topic, kind, keep }, source })
    }

    /// The settings as a section of a configuration file, without the password.
    pub(crate) fn section(&self) -> EventsSection {
        let Self { broker, topic, source } = self.clone();
        EventsSection {
            broker: broker.to_string(),
            topic: topic.name,
            kind: topic.kind,
            source: Some(source),
            keep: Some(topic.keep),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> EventsSection {
        EventsSection {
            broker: "amqp://me:secret@host".to_owned(),
            topic: "tasks".to_owned(),
            kind: None,
            source: None,
            keep: None,
        }
    }

    #[test]
    fn what_is_not_said_is_the_usual_and_the_password_is_not_shown() {
        let settings = EventsSettings::read(section()).unwrap();
        assert_eq!((settings.source.as_str(), settings.topic.keep), ("windlass", 1_000_000));
        assert_eq!(settings.broker.as_str(), "amqp://me:secret@host");
        let shown = format!("{settings:?} {:?}", settings.section());
        assert!(!shown.contains("secret") && shown.contains("host"), "{shown}");
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let error = |section| EventsSettings::read(section).unwrap_err().to_string();
        assert!(error(EventsSection { keep: Some(0), ..section() }).contains("`keep` is 0"));
        for source in ["", "a b", "ü", "<x>"] {
            let error = error(EventsSection { source: Some(source.to_owned()), ..section() });
            assert!(error.contains("`source` is"), "{error}");
        }
        let source = Some("https://tasks.example/eu".to_owned());
        assert!(EventsSettings::read(EventsSection { source, ..section() }).is_ok());
    }
}
