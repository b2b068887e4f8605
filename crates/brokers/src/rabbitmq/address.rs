//! The URL of a RabbitMQ server.

use lapin::{
    tcp::RustlsConnector,
    uri::{AMQPScheme, AMQPUri},
};
use windlass_tls::ClientFiles;

use crate::{BrokerError, percent, tls};

/// The default heartbeat interval in seconds. A peer that is silent for twice as long counts as dead. The
/// server proposes a minute; for that long the messages of a dead worker would lie idle.
const HEARTBEAT: u16 = 5;

/// Numeric parameters of the URL, with their maximums.
const NUMBERS: [(&str, u64); 4] = [
    ("heartbeat", u16::MAX as u64),
    ("channel_max", u16::MAX as u64),
    ("frame_max", u32::MAX as u64),
    ("connection_timeout", u64::MAX),
];

/// The format of the URL.
const EXPECTED: &str = "expected amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps:// for TLS, perhaps with \
                        ?cacert=FILE&cert=FILE&key=FILE behind";

/// A parsed URL.
#[derive(Clone)]
pub(super) struct Address {
    /// The complete URL, with the password.
    pub(super) uri: AMQPUri,
    /// The URL without user and password.
    pub(super) name: String,
    /// The files for TLS.
    files: ClientFiles,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, BrokerError> {
        let invalid = |why: &str| BrokerError::Invalid(format!("the URL of RabbitMQ: {why}; {EXPECTED}"));
        let (_, rest) = url
            .split_once("://")
            .filter(|(scheme, _)| ["amqp", "amqps"].contains(scheme))
            .ok_or_else(|| invalid("its scheme is neither amqp nor amqps"))?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if rest.contains('@') && !authority.contains('@') {
            // Otherwise the part before the @ would count as a host, and be shown.
            return Err(invalid("in user and password write / ? # and @ as %2F %3F %23 and %40"));
        }
        let (login, _) = authority.rsplit_once('@').unwrap_or_default();
        if percent::decode(login).is_none() {
            return Err(invalid("in user and password write % as %25"));
        }
        let (_, query) = rest.split_once('?').unwrap_or_default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let largest = NUMBERS.iter().find(|(number, _)| *number == name).map(|(_, largest)| *largest);
            if let Some(largest) = largest
                && value.parse().ok().is_none_or(|number: u64| number > largest)
            {
                return Err(invalid(&format!("{name} is a number up to {largest}")));
            }
        }
        let mut uri: AMQPUri = url.parse().map_err(|error: String| invalid(&error))?;
        let host = authority.rsplit('@').next().unwrap_or_default();
        if host.is_empty() || host.starts_with(':') {
            return Err(invalid("it names no host"));
        }
        // The parser only supports names and IPv4.
        if let Some((host, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            host.clone_into(&mut uri.authority.host);
        }
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        let (files, _) = ClientFiles::split(query, ClientFiles::NAMES).map_err(|why| invalid(&why))?;
        if uri.scheme == AMQPScheme::AMQP && !files.is_empty() {
            return Err(invalid("cacert, cert and key are for amqps, which is by TLS"));
        }
        let name = name(&uri);
        Ok(Self { uri, name, files })
    }

    /// How to speak TLS. The files are read for each connection, since certificates are replaced while programs run.
    pub(super) fn tls(&self) -> Result<Option<RustlsConnector>, BrokerError> {
        let is_encrypted = self.uri.scheme == AMQPScheme::AMQPS;
        is_encrypted.then(|| tls::configuration(&self.files).map(RustlsConnector::from)).transpose()
    }
}

fn name(uri: &AMQPUri) -> String {
    let host = &uri.authority.host;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let vhost = if uri.vhost == "/" { String::new() } else { format!("/{}", uri.vhost) };
    format!("{}://{host}:{}{vhost}", uri.scheme, uri.authority.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(url: &str) -> String {
        Address::parse(url).unwrap().name
    }

    #[test]
    fn names_have_no_user_and_no_password() {
        assert_eq!(name_of("amqp://user:secret@broker:5673/work"), "amqp://broker:5673/work");
        assert_eq!(name_of("amqps://user:se%2Fcret@broker"), "amqps://broker:5671");
        assert_eq!(name_of("amqp://127.0.0.1/"), "amqp://127.0.0.1:5672");
        assert_eq!(name_of("amqp://u:p@[::1]:7/%2F"), "amqp://[::1]:7");
    }

    #[test]
    fn what_the_url_leaves_out_is_filled_in() {
        let uri = Address::parse("amqp://broker/").unwrap().uri;
        assert_eq!((uri.vhost.as_str(), uri.query.heartbeat), ("/", Some(HEARTBEAT)));
        let uri = Address::parse("amqp://u%40x:p%2F@broker/%2Fx?heartbeat=20").unwrap().uri;
        assert_eq!((uri.vhost.as_str(), uri.query.heartbeat), ("/x", Some(20)));
        assert_eq!((&*uri.authority.userinfo.username, &*uri.authority.userinfo.password), ("u@x", "p/"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_showing_it() {
        let urls = [
            "redis://broker",
            "broker:5672",
            "amqp://",
            "amqp://user:secret@:5672/",
            "amqp://user:sec/ret@broker",
            "amqp://user:secret@broker:port/",
            "amqp://user:sec%zz@broker/",
            "amqp://user:secret@broker/?heartbeat=secret",
        ];
        for url in urls {
            let Err(BrokerError::Invalid(why)) = Address::parse(url) else { panic!("{url} was taken") };
            assert!(why.contains(EXPECTED) && !why.contains("sec"), "{why}");
        }
        for (query, expected) in [
            ("heartbeat=x", "heartbeat is a number up to 65535"),
            ("a=b&channel_max=65536", "channel_max is a"),
            ("cacert=/a.pem", "are for amqps"),
            ("cert=/a.pem", "need each other"),
        ] {
            let Err(error) = Address::parse(&format!("amqp://broker/?{query}")) else { panic!("{query}") };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
