//! Filters of topics, as MQTT has them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::TOPIC_BYTES_MAX;

/// The number of characters of a filter that an error quotes.
const QUOTED_MAX: usize = 100;

/// What begins the filter of a subscription that several clients share.
const SHARED: &str = "$share/";

/// A filter of topics: `+` matches any one level, `#` as the last level any number of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicFilter(Box<str>);

impl TopicFilter {
    /// A filter.
    ///
    /// # Errors
    /// What is wrong with it, and what to write.
    pub fn new(filter: &str) -> Result<Self, String> {
        let quoted: String = filter.chars().take(QUOTED_MAX).collect();
        if filter.is_empty() || filter.len() > TOPIC_BYTES_MAX {
            return Err(format!(
                "a topic filter has 1 to {TOPIC_BYTES_MAX} bytes, and this one has {}",
                filter.len()
            ));
        }
        if filter.contains('\0') {
            return Err("a topic filter must not contain the character NUL".to_owned());
        }
        if filter.starts_with(SHARED) {
            return Err(format!(
                "the filter {quoted:?} is of a shared subscription: write the topics alone, as one server at a time hears them"
            ));
        }
        let mut levels = filter.split('/').peekable();
        while let Some(level) = levels.next() {
            let is_last = levels.peek().is_none();
            if level.contains('#') && (level != "#" || !is_last) {
                return Err(format!(
                    "the filter {quoted:?} has # within a level or before others: use it as the last level, as in site/#"
                ));
            }
            if level.contains('+') && level != "+" {
                return Err(format!(
                    "the filter {quoted:?} has + within a level: write it as a whole level, as in site/+/alarm"
                ));
            }
        }
        Ok(Self(filter.into()))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches a topic. A wildcard as its first level does not match the topics of the broker itself, which begin
    /// with `$`.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        if topic.starts_with('$') && self.0.starts_with(['+', '#']) {
            return false;
        }
        let mut levels = topic.split('/');
        for wanted in self.0.split('/') {
            match (wanted, levels.next()) {
                ("#", _) => return true,
                ("+", Some(_)) => {}
                (wanted, Some(level)) if wanted == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_standard_says() {
        let matches = |filter: &str, topic: &str| TopicFilter::new(filter).unwrap().matches(topic);
        for (filter, topic) in [
            ("a/b", "a/b"),
            ("a/+", "a/b"),
            ("+/+", "a/b"),
            ("+/+", "/b"),
            ("a/#", "a/b/c"),
            ("a/#", "a"),
            ("#", "a/b"),
            ("a/+/#", "a/b"),
            ("+", ""),
            ("$SYS/#", "$SYS/uptime"),
        ] {
            assert!(matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in [
            ("a/b", "a"),
            ("a", "a/b"),
            ("a/+", "a"),
            ("a/+", "a/b/c"),
            ("a/+/#", "a"),
            ("+", "/b"),
            ("#", "$SYS/uptime"),
            ("+/uptime", "$SYS/uptime"),
            ("A/b", "a/b"),
        ] {
            assert!(!matches(filter, topic), "{filter} {topic}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for (filter, why) in [
            ("", "1 to"),
            ("a/#/b", "as the last level"),
            ("a#", "as the last level"),
            ("a/b+", "a whole level"),
            ("$share/g/a", "shared subscription"),
            ("a\0", "NUL"),
        ] {
            let error = TopicFilter::new(filter).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(TopicFilter::new(&"x".repeat(TOPIC_BYTES_MAX + 1)).is_err());
    }
}
