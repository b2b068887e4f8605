//! Which Kafka, and how topics are made there.

use crate::BrokerError;

const EXPECTED: &str =
    "expected kafka://HOST:PORT[,HOST:PORT], perhaps with ?partitions=N&replicas=N&group=NAME behind";

/// Partitions of a topic that is made here: as many consumers of a group have something to do.
const PARTITIONS: i32 = 12;

/// Says that the cluster knows how many copies there should be.
const REPLICAS: i32 = -1;

/// The group whose progress is looked at: that of Windlass's own consumers.
const GROUP: &str = "windlass";

/// The most partitions and copies that may be asked for.
const NUMBER_MAX: i32 = 10_000;

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The whole of it; there is nothing secret in one.
    pub(super) name: String,
    /// Where to ask first, with commas between.
    pub(super) servers: String,
    pub(super) partitions: i32,
    pub(super) replicas: i32,
    pub(super) group: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, BrokerError> {
        // What the URL says is not repeated: there may be a password in one that is written wrongly.
        let invalid = |why: &str| BrokerError::Invalid(format!("the URL of Kafka: {why}; {EXPECTED}"));
        let rest = url.strip_prefix("kafka://").ok_or_else(|| invalid("its scheme is not kafka"))?;
        if rest.contains('@') {
            return Err(invalid("user and password are not supported"));
        }
        let (servers, query) = rest.split_once('?').unwrap_or((rest, ""));
        let servers = servers.strip_suffix('/').unwrap_or(servers);
        if !servers.split(',').all(is_server) {
            return Err(invalid("it does not name hosts with ports"));
        }
        let mut address = Self {
            name: format!("kafka://{servers}"),
            servers: servers.to_owned(),
            partitions: PARTITIONS,
            replicas: REPLICAS,
            group: GROUP.to_owned(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = || value.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number));
            let wrong = || invalid("partitions and replicas are numbers from 1 to 10000");
            match name {
                "partitions" => address.partitions = number().ok_or_else(wrong)?,
                "replicas" => address.replicas = number().ok_or_else(wrong)?,
                "group" if !value.is_empty() => value.clone_into(&mut address.group),
                _ => return Err(invalid("behind the ? there is something unknown")),
            }
        }
        Ok(address)
    }
}

/// Whether this is a host with a port, or a host alone.
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
        assert_eq!((address.partitions, address.replicas, address.group.as_str()), (3, 2, "g"));
        let address = Address::parse("kafka://127.0.0.1").unwrap();
        assert_eq!((address.partitions, address.replicas), (PARTITIONS, REPLICAS));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_showing_it() {
        let urls = [
            "kafka://",
            "kafka://:9092",
            "kafka://host:port-s3cret",
            "kafka://a:1,,b:2",
            "kafka://me:s3cret@host:9092",
            "kafka://host:1?partitions=0",
            "kafka://host:1?password=s3cret",
            "kafka://host:1?group=",
            "amqp://me:s3cret@host",
        ];
        for url in urls {
            let Err(BrokerError::Invalid(why)) = Address::parse(url) else { panic!("{url} was taken") };
            assert!(why.contains(EXPECTED) && !why.contains("s3cret"), "{why}");
        }
    }
}
