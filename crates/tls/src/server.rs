//! The server's side.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::SystemTime,
};

use rustls::{ServerConfig, crypto::ring, pki_types::CertificateDer, server::WebPkiClientVerifier};
use x509_cert::{Certificate, der::Decode as _};

use crate::{Identity, TlsError, files};

/// What is in each of the files, or why it cannot be read.
type Contents = Vec<Result<Vec<u8>, String>>;

/// What a server proves who it is with, and checks clients by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// What it shows to clients.
    pub identity: Identity,
    /// File with the CA certificates for client certificates. Then each client must have one.
    pub client_authorities: Option<PathBuf>,
}

impl ServerFiles {
    /// What is in the files. Of a file that cannot be read the error is it.
    fn contents(&self) -> Contents {
        let paths =
            [Some(&self.identity.certificate), Some(&self.identity.key), self.client_authorities.as_ref()];
        paths
            .into_iter()
            .flatten()
            .map(|path| std::fs::read(path).map_err(|error| error.to_string()))
            .collect()
    }

    /// `contents` were read before: files that are replaced meanwhile are read again.
    fn state(&self, contents: Contents) -> Result<State, TlsError> {
        let (config, expires_at) = self.config()?;
        Ok(State { config: Arc::new(config), expires_at, contents })
    }

    /// The configuration, and when the certificate expires.
    fn config(&self) -> Result<(ServerConfig, Option<SystemTime>), TlsError> {
        let library = |error: &dyn std::fmt::Display| TlsError::Library(error.to_string());
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| library(&error))?;
        let config = match &self.client_authorities {
            None => config.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(files::authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| library(&error))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = self.identity.read()?;
        let expires_at = chain.first().and_then(expiry);
        let mut config =
            config.with_single_cert(chain, key).map_err(|error| self.identity.refused(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok((config, expires_at))
    }
}

/// TLS of a server, from files that may be replaced while it runs.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    config: Arc<ServerConfig>,
    /// When the certificate expires.
    expires_at: Option<SystemTime>,
    /// What was in the files when they were last read.
    contents: Contents,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be used, or the key belongs to another certificate.
    pub fn open(files: ServerFiles) -> Result<Self, TlsError> {
        let state = files.state(files.contents())?;
        Ok(Self { files, state: RwLock::new(state) })
    }

    /// When the certificate of the server expires; `None` if it does not say that in a form that is understood.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).expires_at
    }

    /// The configuration for the next connection.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).config.clone()
    }

    /// Reads the files again if something else is in them than the last time. Whether that is so; new connections then
    /// get the new certificate.
    ///
    /// # Errors
    /// When they cannot be used: the last configuration stays. The same files are no error again.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let contents = self.files.contents();
        if self.state.read().unwrap_or_else(PoisonError::into_inner).contents == contents {
            return Ok(false);
        }
        let read = self.files.state(contents.clone());
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // The same bad files are reported once.
        state.contents = contents;
        *state = read?;
        Ok(true)
    }
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let certificate = Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate.validity.not_after.to_system_time())
}
