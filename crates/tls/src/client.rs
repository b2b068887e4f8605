//! The client's side.

use std::{path::PathBuf, sync::Arc};

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
