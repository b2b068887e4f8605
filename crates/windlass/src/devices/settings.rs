//! The configuration of the network of devices.

use std::{collections::BTreeMap, ops::RangeInclusive};
use utoipa::ToSchema;

use anyhow::{Context as _, anyhow, ensure};
use serde::{Deserialize, Serialize};
use windlass_api::Span;
use windlass_core::{LearnRule, Millis, SPAN_MAX};
use windlass_engine::services::{LEARNED_MAX, LOCKED_TOO_LONG, Learn, MESSAGE_BYTES_KEPT};

use crate::{brokers::BrokerUrl, flowfile::STATUS_DEFAULT};

/// How many MiB of messages may be kept.
const MESSAGES_MIB_RANGE: RangeInclusive<u64> = 1..=65_536;

/// The most rules of `learn`.
const LEARN_RULES_MAX: usize = 100;

/// The default of `client_id`.
const CLIENT_ID_DEFAULT: &str = "windlass";

/// The default of `topics`: everything.
const TOPICS_DEFAULT: &str = "#";

/// The longest `client_id`: brokers may refuse longer ones.
const CLIENT_ID_BYTES_MAX: usize = 65;

/// The versions of MQTT.
pub(super) const PROTOCOLS: [&str; 2] = ["3.1.1", "5"];

/// The most filters in `topics`.
const TOPICS_MAX: usize = 100;

/// The section `[devices]`: the MQTT broker that devices are connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DevicesSection {
    /// URL of the MQTT broker.
    pub(super) broker: String,
    /// The client id of the server. All servers on one store use the same. Default: `windlass`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_id: Option<String>,
    /// The topic filters that the server subscribes to. Default: all topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) topics: Option<Vec<String>>,
    /// The version of MQTT: `3.1.1` or `5`. Default: `3.1.1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<String>,
    /// How long one task may have a device before an alarm is raised. Default: an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) locked_too_long: Option<Span>,
    /// How many MiB of messages are kept. Default: 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keep_messages_mib: Option<u64>,
    /// The most devices that are learned. Default: 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) learn_max: Option<usize>,
    /// Devices that are learned from their status. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) learn: Option<Vec<LearnSection>>,
}

/// Which devices are learned, and how they are declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearnSection {
    /// The filter of their status topics. Its one level `+` is the name of the device.
    topic: String,
    /// The payload that means online.
    #[serde(default = "online")]
    online: String,
    /// The payload that means offline.
    #[serde(default = "offline")]
    offline: String,
    /// The labels that they get.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Whether they return the `attempt` of jobs.
    #[serde(default)]
    echoes_attempt: bool,
}

fn online() -> String {
    STATUS_DEFAULT[0].to_owned()
}

fn offline() -> String {
    STATUS_DEFAULT[1].to_owned()
}

/// The network of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceSettings {
    pub(super) broker: BrokerUrl,
    pub(super) client_id: String,
    pub(super) topics: Vec<String>,
    /// One of [`PROTOCOLS`].
    pub(super) protocol: &'static str,
    pub(super) locked_too_long: Millis,
    pub(super) keep_messages_mib: u64,
    pub(super) learn: Vec<LearnSection>,
    pub(super) learn_max: usize,
}

/// Reads the section.
///
/// # Errors
/// When a value is invalid; the message names the key.
pub(crate) fn read(section: Option<DevicesSection>) -> anyhow::Result<Option<DeviceSettings>> {
    let Some(section) = section else { return Ok(None) };
    let DevicesSection {
        broker,
        client_id,
        topics,
        protocol,
        locked_too_long,
        keep_messages_mib,
        learn,
        learn_max,
    } = section;
    let client_id = client_id.unwrap_or_else(|| CLIENT_ID_DEFAULT.to_owned());
    ensure!(
        (1..=CLIENT_ID_BYTES_MAX).contains(&client_id.len()),
        "`devices.client_id` has {} bytes: use 1 to {CLIENT_ID_BYTES_MAX}",
        client_id.len()
    );
    let topics = topics.unwrap_or_else(|| vec![TOPICS_DEFAULT.to_owned()]);
    ensure!(
        (1..=TOPICS_MAX).contains(&topics.len()) && topics.iter().all(|topic| !topic.is_empty()),
        "`devices.topics` needs 1 to {TOPICS_MAX} topic filters, such as \"site/+/done\""
    );
    let protocol = match protocol {
        None => PROTOCOLS[0],
        Some(text) => *PROTOCOLS.iter().find(|known| **known == text).with_context(|| {
            format!(
                "`devices.protocol` is {text:?}, and this version of MQTT is not supported: use \"{}\"",
                PROTOCOLS.join("\" or \"")
            )
        })?,
    };
    let locked_too_long = locked_too_long.map_or(LOCKED_TOO_LONG, |span| Millis(span.ms));
    ensure!(
        locked_too_long > Millis(0) && locked_too_long <= SPAN_MAX,
        "`devices.locked_too_long` must be longer than 0 and at most 366 days"
    );
    let keep_messages_mib = keep_messages_mib.unwrap_or(MESSAGE_BYTES_KEPT >> 20);
    ensure!(
        MESSAGES_MIB_RANGE.contains(&keep_messages_mib),
        "`devices.keep_messages_mib` is {keep_messages_mib}: use {} to {}",
        MESSAGES_MIB_RANGE.start(),
        MESSAGES_MIB_RANGE.end()
    );
    let (learn, learn_max) = (learn.unwrap_or_default(), learn_max.unwrap_or(LEARNED_MAX));
    ensure!(
        learn.len() <= LEARN_RULES_MAX,
        "`devices.learn` has {} rules: use at most {LEARN_RULES_MAX}",
        learn.len()
    );
    let broker = BrokerUrl::new(broker);
    let settings = DeviceSettings {
        broker,
        client_id,
        topics,
        protocol,
        locked_too_long,
        keep_messages_mib,
        learn,
        learn_max,
    };
    settings.learn()?;
    Ok(Some(settings))
}

impl DeviceSettings {
    /// Which devices are learned.
    ///
    /// # Errors
    /// When a rule is invalid; the message names it.
    pub(super) fn learn(&self) -> anyhow::Result<Learn> {
        let rule = |(index, section): (usize, &LearnSection)| {
            let LearnSection { topic, online, offline, labels, echoes_attempt } = section;
            LearnRule::new(topic, [online, offline], labels.clone(), *echoes_attempt)
                .map_err(|message| anyhow!("`devices.learn[{index}]`: {message}"))
        };
        let rules = self.learn.iter().enumerate().map(rule).collect::<Result<_, _>>()?;
        Ok(Learn { rules, max: self.learn_max })
    }

    /// The section that has these settings, without the password of the URL.
    pub(crate) fn section(&self) -> DevicesSection {
        DevicesSection {
            broker: self.broker.to_string(),
            client_id: Some(self.client_id.clone()),
            topics: Some(self.topics.clone()),
            protocol: Some(self.protocol.to_owned()),
            locked_too_long: Some(Span::from_ms(self.locked_too_long.0)),
            keep_messages_mib: Some(self.keep_messages_mib),
            learn: Some(self.learn.clone()).filter(|learn| !learn.is_empty()),
            learn_max: Some(self.learn_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_toml(more: &str) -> Result<DeviceSettings, String> {
        let section =
            toml::from_str(&format!("broker = \"mqtt://b\"\n{more}")).map_err(|error| error.to_string())?;
        Ok(read(Some(section)).map_err(|error| error.to_string())?.unwrap())
    }

    #[test]
    fn settings_stay_the_same_as_a_section() {
        let learn =
            "learn = [{ topic = \"fleet/+/status\", labels = { site = \"nord\" } }, { topic = \"a/+\" }]";
        let settings =
            read_toml(&format!("locked_too_long = \"2h\"\nkeep_messages_mib = 7\n{learn}")).unwrap();
        let text = toml::to_string(&settings.section()).unwrap();
        assert_eq!(read(Some(toml::from_str(&text).unwrap())).unwrap(), Some(settings));
        assert!(text.contains("locked_too_long = \"2h\"") && text.contains("learn_max = 10000"), "{text}");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (more, why) in [
            ("locked_too_long = \"0s\"", "`devices.locked_too_long` must be longer than 0"),
            ("keep_messages_mib = 0", "`devices.keep_messages_mib` is 0: use 1 to 65536"),
            (
                "learn = [{ topic = \"a/b\" }]",
                "`devices.learn[0]`: the filter \"a/b\" must have exactly one level `+`",
            ),
            ("learn = [{ topic = \"a/+\" }, { topic = \"a/#/+\" }]", "`devices.learn[1]`: "),
            ("learn = [{ topic = \"a/+\", online = \"x\", offline = \"x\" }]", "the same payload"),
            ("learn = [{ filter = \"a/+\" }]", "unknown field `filter`"),
        ] {
            let error = read_toml(more).unwrap_err();
            assert!(error.contains(why), "{more}: {error}");
        }
    }
}
