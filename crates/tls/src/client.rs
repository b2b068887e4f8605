//! The client's side.

use std::{path::PathBuf, sync::Arc};

use percent_encoding::percent_decode_str;
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::{Identity, TlsError, files};

/// What a client checks servers by, and proves who it is with. The files are read when a configuration is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// File with the CA certificates to trust, in place of the system's.
    pub authorities: Option<PathBuf>,
    /// What the client shows to servers that ask for a certificate.
    pub identity: Option<Identity>,
}

/// The URL parameters that name the CA file, the client certificate and its private key.
pub type Names = [&'static str; 3];

impl ClientFiles {
    /// The names in the URLs of most products.
    pub const NAMES: Names = ["cacert", "cert", "key"];

    /// Reads the query of a URL, `cacert=FILE&cert=FILE&key=FILE`, of which each part may be missing. Paths are
    /// percent-decoded.
    ///
    /// # Errors
    /// When there is another parameter, or one of certificate and key is missing. Says what is wrong, without the query.
    pub fn of_query(query: &str) -> Result<Self, String> {
        match Self::split(query, Self::NAMES)? {
            (files, others) if others.is_empty() => Ok(files),
            _ => Err("unknown parameter after the ?: cacert, cert and key are known".to_owned()),
        }
    }

    /// Reads the parameters of these names from the query of a URL, as [`of_query`](Self::of_query) does. Returns the other
    /// parameters as they are.
    ///
    /// # Errors
    /// When a path is empty or no UTF-8, or one of certificate and key is missing. Says what is wrong, without the query.
    pub fn split(query: &str, names: Names) -> Result<(Self, Vec<&str>), String> {
        let mut files = names.map(|_| None);
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, path) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(place) = names.iter().position(|known| *known == name) else {
                others.push(pair);
                continue;
            };
            if path.is_empty() {
                return Err(format!("{name} names no file"));
            }
            let path = percent_decode_str(path).decode_utf8();
            let path = path.map_err(|_| format!("the path of {name} is not UTF-8"))?;
            files[place] = Some(PathBuf::from(&*path));
        }
        let [authorities, certificate, key] = files;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => {
                let [_, certificate, key] = names;
                return Err(format!(
                    "{certificate} and {key} need each other: a certificate and its private key"
                ));
            }
        };
        Ok((Self { authorities, identity }, others))
    }

    /// Whether no file is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The configuration of a client that checks each server's certificate and host name.
///
/// # Errors
/// When a file cannot be used, or nobody is trusted.
pub fn client_config(files: &ClientFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match &files.authorities {
        Some(path) => files::authorities(path)?,
        None => files::authorities_of_system()?,
    };
    with_roots(roots, files.identity.as_ref())
}

/// The configuration of a client that trusts nobody: for libraries that need one although they use no TLS, and for those that
/// check servers in another way.
///
/// # Errors
/// When a file of the identity cannot be used.
pub fn config_without_roots(identity: Option<&Identity>) -> Result<Arc<ClientConfig>, TlsError> {
    with_roots(RootCertStore::empty(), identity)
}

fn with_roots(roots: RootCertStore, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, TlsError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Library(error.to_string()))?
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.read()?;
            config.with_client_auth_cert(chain, key).map_err(|error| identity.refused(&error))?
        }
    };
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_taken_from_a_query_and_the_rest_stays() {
        let (files, others) =
            ClientFiles::split("a=1&sslcert=%2Fc%20c.pem&b&sslkey=/k", ["ca", "sslcert", "sslkey"]).unwrap();
        let identity = Identity { certificate: "/c c.pem".into(), key: "/k".into() };
        assert_eq!(files, ClientFiles { authorities: None, identity: Some(identity) });
        assert_eq!(others, ["a=1", "b"]);
        let (files, others) = ClientFiles::split("", ClientFiles::NAMES).unwrap();
        assert!(files.is_empty() && others.is_empty());
    }

    #[test]
    fn incomplete_queries_are_refused_without_their_values() {
        for (query, why) in [
            ("cert=/s3cret", "cert and key need each other"),
            ("key=/s3cret", "cert and key need each other"),
            ("cacert=", "cacert names no file"),
            ("cert", "cert names no file"),
            ("cacert=%ff", "cacert is not UTF-8"),
            ("s3cret=1", "unknown parameter"),
        ] {
            let error = ClientFiles::of_query(query).unwrap_err();
            assert!(error.contains(why) && !error.contains("s3cret"), "{query}: {error}");
        }
    }
}
