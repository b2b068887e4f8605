//! TLS to the database, as libpq has it: with `sslmode=verify-full` or a root certificate the server must show who it is,
//! with less than that the connection is only encrypted.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio_postgres::{Socket, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;
use windlass_tls::{ClientFiles, TlsError};

/// Makes TLS connections.
pub(super) type Tls = MakeRustlsConnect;

/// A TLS connection.
pub(super) type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Sets up TLS. With `verify` the server's certificate is checked.
pub(super) fn connector(verify: bool, files: &ClientFiles) -> Result<Tls, TlsError> {
    if verify {
        let config = windlass_tls::client_config(files)?;
        return Ok(MakeRustlsConnect::new(ClientConfig::clone(&config)));
    }
    let mut config = ClientConfig::clone(&*windlass_tls::config_without_roots(files.identity.as_ref())?);
    let any = AnyCertificate(Arc::clone(config.crypto_provider()));
    config.dangerous().set_certificate_verifier(Arc::new(any));
    Ok(MakeRustlsConnect::new(config))
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
