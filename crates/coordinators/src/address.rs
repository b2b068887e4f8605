//! `SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…][/PREFIX]`. Products other than a Windlass
//! server also have `SCHEMEs://` for TLS, with the files for it behind a `?`.

use percent_encoding::percent_decode_str;
#[cfg(any(feature = "consul", feature = "etcd", feature = "zookeeper"))]
use windlass_tls::ClientFiles;

use crate::CoordinatorError;

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// The URL without user and password.
    pub(crate) name: String,
    /// `HOST:PORT` each, in the order of the URL.
    pub(crate) hosts: Vec<String>,
    /// Without slashes at its ends. Empty when there is none.
    pub(crate) prefix: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// The files for TLS, if connections are encrypted.
    #[cfg(any(feature = "consul", feature = "etcd", feature = "zookeeper"))]
    pub(crate) tls: Option<ClientFiles>,
}

impl Address {
    /// Reads a URL of this scheme, or of this one with an `s` behind it, for TLS.
    #[cfg(any(feature = "consul", feature = "etcd", feature = "zookeeper"))]
    pub(crate) fn read_with_tls(url: &str, scheme: &str, port: u16) -> Result<Self, CoordinatorError> {
        let encrypted = format!("{scheme}s");
        if !url.strip_prefix(&*encrypted).is_some_and(|rest| rest.starts_with("://")) {
            return Self::read(url, scheme, port);
        }
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let files = ClientFiles::of_query(query).map_err(|why| {
            CoordinatorError::Invalid(format!(
                "invalid URL of a coordinator: {why}; expected {encrypted}://HOST with perhaps ?cacert=FILE&cert=FILE&key=FILE"
            ))
        })?;
        Ok(Self { tls: Some(files), ..Self::read(url, &encrypted, port)? })
    }

    /// Reads a URL of this scheme.
    pub(crate) fn read(url: &str, scheme: &str, port: u16) -> Result<Self, CoordinatorError> {
        let invalid = |why: &str| {
            // The URL itself may have a password in it.
            CoordinatorError::Invalid(format!(
                "invalid URL of a coordinator: {why}; expected {scheme}://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]"
            ))
        };
        let rest = url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
        let rest = rest.ok_or_else(|| invalid("its scheme is another one"))?;
        if rest.contains(['?', '#']) {
            return Err(invalid("parameters are not supported"));
        }
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let decode = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(String::from).map_err(|_| invalid("user and password must be UTF-8"))
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
            None => (None, None),
        };
        let mut complete = Vec::new();
        for host in hosts.split(',') {
            complete.push(with_port(host, port).ok_or_else(|| invalid("a host or its port is not valid"))?);
        }
        let prefix = prefix.trim_matches('/').to_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let is_part = |part: &str| !["", ".", ".."].contains(&part) && part.chars().all(is_plain);
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            return Err(invalid("the prefix may have A-Z a-z 0-9 _ . - and single slashes"));
        }
        let slash = if prefix.is_empty() { "" } else { "/" };
        let name = format!("{scheme}://{}{slash}{prefix}", complete.join(","));
        Ok(Self {
            name,
            hosts: complete,
            prefix,
            user,
            password,
            #[cfg(any(feature = "consul", feature = "etcd", feature = "zookeeper"))]
            tls: None,
        })
    }

    #[cfg(any(feature = "consul", feature = "etcd", feature = "zookeeper"))]
    /// The key of a name: below the prefix, if there is one.
    pub(crate) fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }
}

/// `HOST:PORT`, of a host with or without a port. An IPv6 address is in brackets.
fn with_port(host: &str, default: u16) -> Option<String> {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok().filter(|port| *port > 0)?),
        _ => (host, default),
    };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_good = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty()
                && name.len() <= 253
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        }
    };
    is_good.then(|| format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_read() {
        let address = Address::read("etcd://u%40x:p%2F:@a,b:7,[::1]:8/some/where/", "etcd", 2379).unwrap();
        assert_eq!(address.hosts, ["a:2379", "b:7", "[::1]:8"]);
        assert_eq!(address.name, "etcd://a:2379,b:7,[::1]:8/some/where");
        assert_eq!(address.user.as_deref(), Some("u@x"));
        assert_eq!(address.password.as_deref(), Some("p/:"));
        assert_eq!(address.key("n"), "some/where/n");
        let address = Address::read("consul://127.0.0.1", "consul", 8500).unwrap();
        assert_eq!((address.name.as_str(), address.key("n").as_str()), ("consul://127.0.0.1:8500", "n"));
        assert_eq!((address.user, address.password), (None, None));
    }

    #[test]
    fn files_for_tls_are_parameters() {
        let url = "etcds://u:p@a,b:7/x?cacert=/my%20ca.pem&cert=/c.pem&key=/c.key";
        let address = Address::read_with_tls(url, "etcd", 2379).unwrap();
        assert_eq!((address.name.as_str(), address.prefix.as_str()), ("etcds://a:2379,b:7/x", "x"));
        let files = address.tls.unwrap();
        assert_eq!(files.authorities.as_deref(), Some("/my ca.pem".as_ref()));
        assert_eq!(files.identity.unwrap().key, std::path::PathBuf::from("/c.key"));
        let plain = |url: &str| Address::read_with_tls(url, "etcd", 2379);
        assert_eq!(plain("etcd://a").unwrap().tls, None);
        assert_eq!(plain("etcds://a").unwrap().tls, Some(ClientFiles::default()));
        for wrong in
            ["etcds://u:secret@a?cert=/c", "etcds://u:secret@a?secret=1", "etcd://u:secret@a?cacert=/c"]
        {
            let error = plain(wrong).unwrap_err().to_string();
            assert!(error.contains("invalid URL") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_invalid_one_is_refused_without_its_password() {
        for wrong in [
            "etcd://",
            "etcd://a,,b",
            "etcd://a:0",
            "etcd://a:x",
            "etcd://a:70000",
            "etcd://[::x]",
            "etcd://a b",
            "etcd://a/x//y",
            "etcd://a/../b",
            "etcd://a/b%20c",
            "etcd://a?tls=1",
            "http://a",
            "etcd:/a",
        ] {
            let url = wrong.replace("://", "://u:secret@");
            for url in [wrong, &url] {
                let error = Address::read(url, "etcd", 2379).unwrap_err().to_string();
                assert!(error.contains("invalid URL") && !error.contains("secret"), "{url}: {error}");
            }
        }
    }
}
