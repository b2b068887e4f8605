//! The URL of a broker or a coordinator.

use std::fmt;

/// The URL of a broker or a coordinator, which may contain a password. `Display` and `Debug` leave the password out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BrokerUrl(String);

impl BrokerUrl {
    pub(crate) fn new(url: String) -> Self {
        Self(url)
    }

    /// The URL to connect with, with its password.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Splits at the last `@`: the part before it may contain any character, and is not shown.
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        let place = place.split(['?', '#', ';']).next().unwrap_or_default();
        // The value is a list such as `host=redis password=secret`: any part of it may be the password.
        let place = if place.contains('=') { "…" } else { place };
        let user = if user.is_some() { "…@" } else { "" };
        if scheme.is_empty() { f.write_str(place) } else { write!(f, "{scheme}://{user}{place}") }
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_password_is_shown() {
        for url in ["redis://u:p?ss@host:1", "redis://u:p@ss@host:1", "redis://u:p/ss@host:1?x=y"] {
            assert_eq!(BrokerUrl::new(url.to_owned()).to_string(), "redis://…@host:1");
        }
        for text in ["host=h password=p", "h:1,password=p", "sqs://h:1;password=p"] {
            let shown = BrokerUrl::new(text.to_owned()).to_string();
            assert!(!shown.contains('p'), "{shown}");
        }
        assert_eq!(BrokerUrl::new("redis://host:1/0".to_owned()).to_string(), "redis://host:1/0");
    }
}
