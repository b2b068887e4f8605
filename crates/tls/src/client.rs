//! The client's side.

use std::{path::PathBuf, sync::Arc};

use percent_encoding::percent_decode_str;
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::{Identity, TlsError, files};

/// What a client checks servers by, and proves who it is with. The files are read when a configuration is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// File with the certificates of the authorities to trust, in place of the system's.
    pub authorities: Option<PathBuf>,
    /// What the client shows to servers that ask for a certificate.
    pub identity: Option<Identity>,
}

impl ClientFiles {
    /// Reads the query of a URL, `cacert=FILE&cert=FILE&key=FILE`, of which each part may be missing. Paths are
    /// percent-decoded.
    ///
    /// # Errors
    /// When there is another parameter, or one of certificate and key is missing. Says what is wrong, without the query.
    pub fn of_query(query: &str) -> Result<Self, &'static str> {
        let (mut authorities, mut certificate, mut key) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (place, file) = match pair.split_once('=') {
                Some(("cacert", file)) => (&mut authorities, file),
                Some(("cert", file)) => (&mut certificate, file),
                Some(("key", file)) => (&mut key, file),
                _ => return Err("unknown parameter after the ?: cacert, cert and key are known"),
            };
            let file = percent_decode_str(file).decode_utf8();
            *place = Some(PathBuf::from(&*file.map_err(|_| "the path of a file is not UTF-8")?));
        }
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => return Err("cert and key need each other: a certificate and its private key"),
        };
        Ok(Self { authorities, identity })
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

/// The configuration of a client that uses no TLS, for libraries that need one nevertheless: it trusts nobody.
///
/// # Errors
/// Never in practice.
pub fn config_without_roots() -> Result<Arc<ClientConfig>, TlsError> {
    with_roots(RootCertStore::empty(), None)
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
