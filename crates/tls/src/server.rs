//! The server's side.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{ServerConfig, crypto::ring, server::WebPkiClientVerifier};

use crate::{Identity, TlsError, files};

/// What a server proves who it is with, and checks clients by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// What it shows to clients.
    pub identity: Identity,
    /// File with the certificates of the authorities that issue those of clients. Then each client must have one.
    pub client_authorities: Option<PathBuf>,
}

impl ServerFiles {
    /// What is in the files. Of a file that cannot be read the error is it.
    fn contents(&self) -> Vec<Result<Vec<u8>, String>> {
        let paths =
            [Some(&self.identity.certificate), Some(&self.identity.key), self.client_authorities.as_ref()];
        paths
            .into_iter()
            .flatten()
            .map(|path| std::fs::read(path).map_err(|error| error.to_string()))
            .collect()
    }

    fn config(&self) -> Result<ServerConfig, TlsError> {
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
        let mut config =
            config.with_single_cert(chain, key).map_err(|error| self.identity.refused(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
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
    /// What was in the files when they were last read.
    contents: Vec<Result<Vec<u8>, String>>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be used, or the key belongs to another certificate.
    pub fn open(files: ServerFiles) -> Result<Self, TlsError> {
        let contents = files.contents();
        let config = Arc::new(files.config()?);
        Ok(Self { files, state: RwLock::new(State { config, contents }) })
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
        let config = self.files.config();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.contents = contents;
        state.config = Arc::new(config?);
        Ok(true)
    }
}
