//! The URL of a Kafka cluster: its servers, the login, and the settings of new topics.

use windlass_tls::ClientFiles;

use crate::{BrokerError, percent, tls};

const EXPECTED: &str = "expected kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT], or kafkas:// for TLS, \
                        perhaps with ?cacert=FILE&cert=FILE&key=FILE&sasl=MECHANISM&partitions=N&replicas=N&group=NAME behind";

/// Partitions of new topics: the number of consumers of a group that can work in parallel.
const PARTITIONS: i32 = 12;

/// The cluster's default number of copies.
const REPLICAS: i32 = -1;

/// The default name of Windlass's own consumer groups.
const GROUP: &str = "windlass";

/// The largest number of partitions and copies in a URL.
const NUMBER_MAX: i32 = 10_000;

/// The supported login mechanisms. The first is the default: the password is never sent in readable form, and
/// the cluster itself does not know it.
const MECHANISMS: [&str; 3] = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"];

/// A parsed URL. It is never shown as a whole, because it may contain a password.
pub(super) struct Address {
    /// Scheme and servers, without user and password.
    pub(super) name: String,
    /// The bootstrap servers, separated by commas.
    pub(super) servers: String,
    /// The files for TLS; `None` = without TLS.
    pub(super) tls: Option<ClientFiles>,
    pub(super) login: Option<Login>,
    pub(super) partitions: i32,
    pub(super) replicas: i32,
    /// The group whose progress is shown, unless it is that of Windlass's own consumers.
    pub(super) group: Option<String>,
}

/// The login and its mechanism.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) mechanism: &'static str,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, BrokerError> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let is_encrypted = match scheme {
            "kafka" => false,
            "kafkas" => true,
            _ => return Err(invalid("its scheme is neither kafka nor kafkas")),
        };
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            // Otherwise the part before the @ would count as a host, and be shown.
            return Err(invalid("in user and password write / ? : and @ as %2F %3F %3A and %40"));
        }
        let (login, servers) = match authority.rsplit_once('@') {
            Some((login, servers)) => (Some(Login::parse(login)?), servers),
            None => (None, authority),
        };
        let servers = servers.strip_suffix('/').unwrap_or(servers);
        if !servers.split(',').all(is_server) {
            return Err(invalid("it does not name hosts with ports"));
        }
        let (files, parameters) =
            ClientFiles::split(query, ClientFiles::NAMES).map_err(|why| invalid(&why))?;
        if !is_encrypted && !files.is_empty() {
            return Err(invalid("cacert, cert and key are for kafkas, which is by TLS"));
        }
        if !files.is_empty() {
            // The library would report a wrong file only on connecting, and in its own words.
            tls::configuration(&files)?;
        }
        let mut address = Self {
            name: format!("{scheme}://{servers}"),
            servers: servers.to_owned(),
            tls: is_encrypted.then_some(files),
            login,
            partitions: PARTITIONS,
            replicas: REPLICAS,
            group: None,
        };
        for pair in parameters {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            address.set(name, value)?;
        }
        Ok(address)
    }

    /// The group whose progress is shown.
    pub(super) fn group(&self, topic: &str) -> String {
        self.group.clone().unwrap_or_else(|| group(GROUP, topic))
    }

    /// Applies one parameter of the URL.
    fn set(&mut self, name: &str, value: &str) -> Result<(), BrokerError> {
        let number = || {
            let number = value.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number));
            number.ok_or_else(|| invalid("partitions and replicas are numbers from 1 to 10000"))
        };
        match name {
            "partitions" => self.partitions = number()?,
            "replicas" => self.replicas = number()?,
            "group" if !value.is_empty() => self.group = Some(value.to_owned()),
            "sasl" => {
                let login =
                    self.login.as_mut().ok_or_else(|| invalid("sasl is for a user, and there is none"))?;
                let known = MECHANISMS.into_iter().find(|known| known.eq_ignore_ascii_case(value));
                let unknown = || invalid(&format!("sasl is one of {}", MECHANISMS.join(", ")));
                login.mechanism = known.ok_or_else(unknown)?;
            }
            _ => return Err(invalid("unknown parameter after the ?")),
        }
        Ok(())
    }
}

/// The consumer group of a topic. Each topic has its own group: a member that joins or leaves makes the whole
/// group wait, and a dead member does so until its session times out.
pub(super) fn group(consumers: &str, topic: &str) -> String {
    format!("{consumers}.{topic}")
}

impl Login {
    fn parse(text: &str) -> Result<Self, BrokerError> {
        let decode =
            |text: &str| percent::decode(text).filter(|text| !text.is_empty() && !text.contains('\0'));
        let both = text.split_once(':').and_then(|(user, password)| Some((decode(user)?, decode(password)?)));
        let (user, password) = both.ok_or_else(|| invalid("write USER:PASSWORD before the @"))?;
        Ok(Self { user, password, mechanism: MECHANISMS[0] })
    }
}

/// Does not repeat the URL: even an invalid one may contain a password.
fn invalid(why: &str) -> BrokerError {
    BrokerError::Invalid(format!("the URL of Kafka: {why}; {EXPECTED}"))
}

/// Whether this is a host, with or without a port.
fn is_server(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    !host.is_empty() && host.chars().all(is_host) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_and_how_topics_are_made() {
        let address = Address::parse("kafka://one:9092,[::1]:9093/?partitions=3&replicas=2&group=g").unwrap();
        assert_eq!(address.name, "kafka://one:9092,[::1]:9093");
        assert_eq!(address.servers, "one:9092,[::1]:9093");
        assert_eq!((address.partitions, address.replicas, address.group("t").as_str()), (3, 2, "g"));
        assert_eq!(Address::parse("kafka://one:9092").unwrap().group("t"), "windlass.t");
        let address = Address::parse("kafka://127.0.0.1").unwrap();
        assert_eq!((address.partitions, address.replicas), (PARTITIONS, REPLICAS));
        assert!(address.tls.is_none() && address.login.is_none());
    }

    #[test]
    fn a_url_says_who_we_are() {
        let login = |url: &str| {
            let address = Address::parse(url).unwrap();
            assert!(!address.name.contains('@'), "{}", address.name);
            let login = address.login.unwrap();
            (address.tls.is_some(), login.user, login.password, login.mechanism)
        };
        let expected = (true, "m@".to_owned(), "a:/?".to_owned(), "SCRAM-SHA-512");
        assert_eq!(login("kafkas://m%40:a:%2F%3F@one:1,two:2/"), expected);
        assert_eq!(login("kafka://m:p@one?group=g&sasl=scram-sha-256").3, "SCRAM-SHA-256");
        assert_eq!(login("kafkas://m:p@one?sasl=PLAIN").3, "PLAIN");
        assert_eq!(Address::parse("kafkas://one:9093").unwrap().tls, Some(ClientFiles::default()));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_showing_it() {
        let urls = [
            "kafka://",
            "kafka://:9092",
            "kafka://host:port-s3cret",
            "kafka://a:1,,b:2",
            "kafka://me@host:9092",
            "kafka://me:@host:9092",
            "kafka://:s3cret@host:9092",
            "kafka://me:s3cret%00@host:9092",
            "kafka://me:s3?cret@host:9092",
            "kafka://me:s3/cret%@host:9092",
            "kafka://me:s3cret@host@:9092",
            "kafka://me:s3cret@host:9092?sasl=GSSAPI",
            "kafka://host:9092?sasl=PLAIN",
            "kafka://host:9092?cacert=/s3cret",
            "kafkas://host:9092?cert=/s3cret",
            "kafka://host:1?partitions=0",
            "kafka://host:1?password=s3cret",
            "kafka://host:1?group=",
            "amqp://me:s3cret@host",
        ];
        for url in urls {
            let Err(BrokerError::Invalid(why)) = Address::parse(url) else { panic!("{url} was taken") };
            assert!(why.contains(EXPECTED) && !why.contains("s3"), "{why}");
        }
        let Err(error) = Address::parse("kafkas://host?cacert=/no/such/file") else { panic!("it was taken") };
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
