//! Devices that are learned: the first message in which one says that it is online declares it.

use std::collections::BTreeMap;

use crate::{Device, Name, PresenceRule, StatusTopic, TopicFilter};

/// Which devices are learned, and how they are declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnRule {
    topic: TopicFilter,
    online: Box<str>,
    offline: Box<str>,
    labels: BTreeMap<String, String>,
    echoes_attempt: bool,
}

impl LearnRule {
    /// A rule for the status topics that `topic` matches: its one level `+` is the name of the device.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn new(
        topic: &str,
        [online, offline]: [&str; 2],
        labels: BTreeMap<String, String>,
        echoes_attempt: bool,
    ) -> Result<Self, String> {
        let filter = TopicFilter::new(topic)?;
        if topic.split('/').filter(|level| *level == "+").count() != 1 || topic.contains('#') {
            return Err(format!(
                "the filter {topic:?} must have exactly one level `+`, which is the name of the device, and no `#`: write it \
                 as fleet/+/status"
            ));
        }
        let rule =
            Self { topic: filter, online: online.into(), offline: offline.into(), labels, echoes_attempt };
        // What a device would be refused for is wrong with the rule.
        if let Ok(name) = Name::new("d") {
            rule.device(name, &topic.replace('+', "d")).check()?;
        }
        Ok(rule)
    }

    /// The name of the device whose status is on this topic, if the rule is for it. It may be no valid name.
    #[must_use]
    pub fn name_in<'t>(&self, topic: &'t str) -> Option<&'t str> {
        if !self.topic.matches(topic) {
            return None;
        }
        let place = self.topic.as_str().split('/').position(|level| level == "+")?;
        topic.split('/').nth(place)
    }

    /// Whether this payload means online; `None` = neither online nor offline.
    #[must_use]
    pub fn is_online(&self, payload: &str) -> Option<bool> {
        StatusTopic { topic: "", online: &self.online, offline: &self.offline }.is_online(payload)
    }

    /// The device of this name, with its status on this topic.
    #[must_use]
    pub fn device(&self, name: Name, topic: &str) -> Device {
        let (topic, online, offline) = (topic.into(), self.online.clone(), self.offline.clone());
        let presence = PresenceRule::Learned { topic, online, offline };
        Device { name, labels: self.labels.clone(), presence, echoes_attempt: self.echoes_attempt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(topic: &str) -> Result<LearnRule, String> {
        LearnRule::new(topic, ["online", "offline"], BTreeMap::new(), false)
    }

    #[test]
    fn the_level_with_the_wildcard_is_the_name() {
        let rule = rule("fleet/+/status").unwrap();
        assert_eq!(rule.name_in("fleet/pump-1/status"), Some("pump-1"));
        assert_eq!(rule.name_in("fleet/pump-1/done"), None);
        assert_eq!(rule.name_in("fleet/a/b/status"), None);
        assert_eq!(rule.name_in("fleet//status"), Some(""));
        let device = rule.device(Name::new("pump-1").unwrap(), "fleet/pump-1/status");
        assert_eq!(device.presence.status().unwrap().topic, "fleet/pump-1/status");
    }

    #[test]
    fn a_rule_without_one_name_is_refused() {
        for topic in ["fleet/status", "+/+/status", "fleet/#", "+/#"] {
            assert!(rule(topic).unwrap_err().contains("exactly one level"), "{topic}");
        }
        let same = LearnRule::new("a/+", ["on", "on"], BTreeMap::new(), false).unwrap_err();
        assert!(same.contains("the same payload"), "{same}");
    }
}
