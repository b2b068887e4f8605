//! The URL of an MQTT broker.

use std::fmt;

use windlass_tls::ClientFiles;

use crate::{BrokerError, percent};

/// The default ports: without TLS, and with it.
const PORTS_DEFAULT: [u16; 2] = [1883, 8883];

/// The longest part of a URL that an error quotes, in characters.
const QUOTED_MAX: usize = 100;

/// Where the broker is, and as whom to connect.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    /// User and password.
    pub(super) login: Option<(String, String)>,
    /// The certificates; `None` = without TLS.
    pub(super) tls: Option<ClientFiles>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, BrokerError> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let is_encrypted = match scheme {
            "mqtt" => false,
            "mqtts" => true,
            _ => return Err(invalid("the URL begins with neither mqtt:// nor mqtts://")),
        };
        let (rest, query) = match rest.rsplit_once('?') {
            // Otherwise a part of the password would be shown.
            Some((_, query)) if query.contains('@') => {
                return Err(invalid("write / ? # and @ in user and password as %2F %3F %23 and %40"));
            }
            Some((rest, query)) => (rest, query),
            None => (rest, ""),
        };
        let tls =
            is_encrypted.then(|| ClientFiles::of_query(query).map_err(|why| invalid(&why))).transpose()?;
        if !is_encrypted && !query.is_empty() {
            return Err(invalid("parameters after the ? are for mqtts://, which is by TLS"));
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // The last `@`: a password may have another one.
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                let part = |text| {
                    percent::decode(text).ok_or_else(|| invalid("user or password is not percent-encoded"))
                };
                (Some((part(user)?, part(password)?)), place)
            }
            None => (None, rest),
        };
        if place.contains(['/', '?', '#']) {
            return Err(invalid("the URL has a path, and an MQTT broker has none"));
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port = port.parse().map_err(|_| {
                    let port: String = port.chars().take(QUOTED_MAX).collect();
                    invalid(&format!("{port:?} is not a port"))
                })?;
                (host, port)
            }
            _ => (place, PORTS_DEFAULT[usize::from(is_encrypted)]),
        };
        if host.is_empty() {
            return Err(invalid("the URL has no host"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port, login, tls })
    }

    /// The URL without user and password.
    pub(super) fn name(&self) -> String {
        let scheme = if self.tls.is_some() { "mqtts" } else { "mqtt" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }
}

fn invalid(what: &str) -> BrokerError {
    BrokerError::Invalid(format!(
        "{what}: write mqtt://USER:PASSWORD@HOST:PORT, or mqtts:// for TLS, perhaps with ?cacert=FILE&cert=FILE&key=FILE behind"
    ))
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use windlass_tls::Identity;

    use super::*;

    #[test]
    fn urls_are_read_and_their_secrets_not_shown() {
        let address = Address::parse("mqtt://us%40er:p%2Fw@broker:1884/").unwrap();
        assert_eq!(address.login, Some(("us@er".to_owned(), "p/w".to_owned())));
        assert_eq!((address.host.as_str(), address.port), ("broker", 1884));
        assert_eq!(format!("{address:?}"), "mqtt://broker:1884");
        assert_eq!(Address::parse("mqtt://[::1]").unwrap().port, 1883);
    }

    #[test]
    fn files_of_certificates_are_parameters() {
        let address = Address::parse("mqtts://u:p@broker?cacert=%2Fa.pem&cert=/c.pem&key=/c.key").unwrap();
        let identity = Some(Identity { certificate: "/c.pem".into(), key: "/c.key".into() });
        let files = ClientFiles { authorities: Some("/a.pem".into()), identity };
        assert_eq!((address.name().as_str(), &address.tls), ("mqtts://broker:8883", &Some(files)));
        assert_eq!(Address::parse("mqtts://broker:1").unwrap().tls, Some(ClientFiles::default()));
    }

    #[test]
    fn wrong_urls_are_refused_without_their_secrets() {
        for url in [
            "amqp://h",
            "mqtt://",
            "mqtt://user:secret@host:port",
            "mqtt://h/path",
            "mqtt://h?cacert=/secret",
            "mqtts://h?password=secret",
            "mqtts://h?cert=/c.pem",
            "mqtts://user:se?cret=secret@h",
            "mqtt://%zz@h",
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains("mqtt://") && !error.contains("secret"), "{error}");
        }
    }
}
