//! `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, and `rediss://` for TLS.

use std::{fs, path::PathBuf};

use redis::{Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use windlass_tls::ClientFiles;

use crate::{BrokerError, percent, tls};

const FORM: &str = "expected redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS, perhaps with \
                    ?cacert=FILE&cert=FILE&key=FILE behind";

/// Makes the client of a server, and its name for log messages.
pub(super) fn read(url: &str) -> Result<(Client, String), BrokerError> {
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    if !["redis", "rediss"].contains(&scheme) {
        return Err(invalid("its scheme is neither redis nor rediss"));
    }
    check(&url[scheme.len() + "://".len()..])?;
    let (plain, query) = url.split_once('?').unwrap_or((url, ""));
    let files = ClientFiles::of_query(query).map_err(|why| invalid(&why))?;
    if scheme == "redis" && !files.is_empty() {
        return Err(invalid("cacert, cert and key are for rediss, which is by TLS"));
    }
    let not_understood = |_| invalid("it is not understood");
    let information = plain.into_connection_info().map_err(not_understood)?;
    let database = information.redis_settings().db();
    let (scheme, host, port) = match information.addr() {
        ConnectionAddr::Tcp(host, port) => ("redis", host.clone(), *port),
        ConnectionAddr::TcpTls { host, port, .. } => ("rediss", host.clone(), *port),
        _ => return Err(invalid("it names no host")),
    };
    let name = format!("{scheme}://{host}:{port}/{database}");
    if scheme == "redis" {
        let client = Client::open(information).map_err(not_understood)?;
        return Ok((client, name));
    }
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread was faster: then a provider is installed.
        let _ = ring::default_provider().install_default();
    }
    let client = Client::build_with_tls(information, certificates(&files)?)
        .map_err(|error| BrokerError::Invalid(format!("cannot set up TLS: {error}")))?;
    Ok((client, name))
}

/// What is in the files, after a check: the library would not say which of them is wrong.
fn certificates(files: &ClientFiles) -> Result<TlsCertificates, BrokerError> {
    tls::configuration(files)?;
    let read = |path: &PathBuf| {
        fs::read(path)
            .map_err(|error| BrokerError::Invalid(format!("cannot read {}: {error}", path.display())))
    };
    let client_tls = files.identity.as_ref().map(|identity| {
        let (client_cert, client_key) = (read(&identity.certificate)?, read(&identity.key)?);
        Ok(ClientTlsConfig { client_cert, client_key })
    });
    let root_cert = files.authorities.as_ref().map(read).transpose()?;
    Ok(TlsCertificates { client_tls: client_tls.transpose()?, root_cert })
}

/// Refuses an invalid URL, and names the invalid part if possible.
fn check(rest: &str) -> Result<(), BrokerError> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (authority, path) = match authority.split_once(['?', '#']) {
        Some((authority, _)) => (authority, ""),
        None => (authority, path.split(['?', '#']).next().unwrap_or_default()),
    };
    let (login, server) = match authority.rsplit_once('@') {
        Some((login, server)) => (login, server),
        // Otherwise the part before the @ would count as a host, and be shown.
        None if rest.contains('@') => {
            return Err(invalid("in user and password write / ? # and @ as %2F %3F %23 and %40"));
        }
        None => ("", authority),
    };
    if percent::decode(login).is_none() {
        return Err(invalid("in user and password write % as %25"));
    }
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (server, ""),
    };
    if host.is_empty() {
        return Err(invalid("it names no host"));
    }
    if !port.is_empty() && port.parse::<u16>().is_err() {
        return Err(invalid("its port is not a number up to 65535"));
    }
    let database = path.trim_matches('/');
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Err(invalid("its database, after the /, is not a number"));
    }
    Ok(())
}

/// Does not repeat the URL: even an invalid one may contain a password.
fn invalid(why: &str) -> BrokerError {
    BrokerError::Invalid(format!("the URL of Redis: {why}; {FORM}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_password() {
        let (_, name) = read("redis://me:s3cret@example.com/2").unwrap();
        assert_eq!(name, "redis://example.com:6379/2");
        assert_eq!(read("redis://[::1]:7").unwrap().1, "redis://::1:7/0");
    }

    #[test]
    fn what_is_no_url_is_not_repeated() {
        for (url, why) in [
            ("", "its scheme"),
            ("redis:", "its scheme"),
            ("amqp://me:s3cret@host", "its scheme"),
            ("redis://me:s3cret@host:port", "its port"),
            ("redis://me:s3cret@host:65536", "its port"),
            ("redis://me:s3cret@:6379", "no host"),
            ("redis://me:s3cret@host/one", "its database"),
            ("redis://me:s3cret@host/-1", "its database"),
            ("redis://me:s3cret%zz@host", "write % as"),
            ("redis://me:s3/cret@host", "write / ? #"),
            ("redis://me:s3?cret@host", "write / ? #"),
            ("redis://me:s3cret@a b", "it is not understood"),
            ("redis://h?x=s3cret", "after the ?"),
            ("rediss://h?cert=/s3cret", "need each other"),
            ("redis://h/1?cacert=s3cret", "are for rediss"),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains("redis://[USER:PASSWORD@]HOST") && error.contains(why), "{url}: {error}");
            assert!(!error.contains("s3"), "{error}");
        }
        assert_eq!(read("redis://me:%73%25@host:7/2/").unwrap().1, "redis://host:7/2");
        let error = read("rediss://host?cacert=/no/such/file").unwrap_err().to_string();
        assert!(error.contains("/no/such/file"), "{error}");
    }
}
