//! `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, and `rediss://` for TLS.

use std::fs;

use redis::{Client, ConnectionAddr, IntoConnectionInfo as _, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

use crate::BrokerError;

/// Names a file with root certificates, where those of the system are not to be used.
const ROOTS: &str = "cacert=";

const FORM: &str = "the URL of a Redis server is redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], \
                    or rediss:// for TLS, with ?cacert=FILE where the system does not know its certificate";

/// Where a server is, and its name for people.
pub(super) fn read(url: &str) -> Result<(Client, String), BrokerError> {
    // What the URL says is not repeated: there may be a password anywhere in one that is written wrongly.
    let invalid = || BrokerError::Invalid(FORM.to_owned());
    if !url.starts_with("redis://") && !url.starts_with("rediss://") {
        return Err(invalid());
    }
    let (plain, roots) = match url.split_once('?') {
        Some((plain, parameters)) => (plain, Some(parameters.strip_prefix(ROOTS).ok_or_else(invalid)?)),
        None => (url, None),
    };
    let information = plain.into_connection_info().map_err(|_| invalid())?;
    let database = information.redis_settings().db();
    let (scheme, host, port) = match information.addr() {
        ConnectionAddr::Tcp(host, port) => ("redis", host.clone(), *port),
        ConnectionAddr::TcpTls { host, port, .. } => ("rediss", host.clone(), *port),
        _ => return Err(invalid()),
    };
    let name = format!("{scheme}://{host}:{port}/{database}");
    if scheme == "redis" {
        let client = Client::open(information).map_err(|_| invalid())?;
        return if roots.is_none() { Ok((client, name)) } else { Err(invalid()) };
    }
    if CryptoProvider::get_default().is_none() {
        // Somebody else may have been quicker: then there is one.
        let _ = ring::default_provider().install_default();
    }
    let wrong = |path: &str, error: &dyn std::fmt::Display| {
        BrokerError::Invalid(format!("cannot read root certificates from {path}: {error}"))
    };
    let root_cert = roots.map(|path| fs::read(path).map_err(|error| wrong(path, &error))).transpose()?;
    let client = Client::build_with_tls(information, TlsCertificates { client_tls: None, root_cert })
        .map_err(|error| wrong(roots.unwrap_or("the system"), &error))?;
    Ok((client, name))
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
        for url in
            ["", "redis:", "amqp://me:s3cret@host", "redis://me:s3cret@host:port", "redis://h?x=s3cret"]
        {
            let error = read(url).unwrap_err().to_string();
            assert!(
                error.contains("redis://[USER:PASSWORD@]HOST") && !error.contains("s3cret"),
                "{url}: {error}"
            );
        }
        let error = read("rediss://host?cacert=/no/such/file").unwrap_err().to_string();
        assert!(error.contains("/no/such/file"), "{error}");
    }
}
