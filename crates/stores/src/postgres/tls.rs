//! TLS to the database, as libpq has it: with `sslmode=verify-full` or a root certificate the server must show who it is,
//! with less than that the connection is only encrypted.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use thiserror::Error;
use tokio_postgres::{Socket, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Makes TLS connections.
pub(super) type Tls = MakeRustlsConnect;

/// A TLS connection.
pub(super) type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Why TLS cannot be set up.
#[derive(Debug, Error)]
pub(super) enum TlsError {
    /// The file with root certificates cannot be read.
    #[error("cannot read root certificates from {path}: {message}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// There are none.
    #[error(
        "there are no root certificates to check the server's by: name a file by sslrootcert=PATH, or install the system's"
    )]
    NoRoots,
    /// The library refuses.
    #[error("cannot set up TLS: {0}")]
    Rustls(#[from] Error),
}

/// Sets up TLS. With `verify` the server's certificate is checked, by the certificates in the file or else by those of
/// the system.
pub(super) fn connector(verify: bool, roots: Option<&Path>) -> Result<Tls, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let config = if verify {
        config.with_root_certificates(root_certificates(roots)?)
    } else {
        config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    };
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}

fn root_certificates(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            let wrong = |message: String| TlsError::File { path: path.into(), message };
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    Ok(roots)
}

/// Takes whatever certificate the server shows: the connection is encrypted, and that is all that was asked for.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
