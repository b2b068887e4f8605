//! TLS to an MQTT broker.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::BrokerError;

/// Files of certificates. They are read for each connection, since certificates are replaced while programs run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// The certificates of trusted authorities, in place of the system's.
    pub(super) authorities: Option<String>,
    /// The certificate of this client and its private key.
    pub(super) client: Option<(String, String)>,
}

/// How the library reports an alert of the broker. With TLS 1.2, a missing certificate is a failed handshake.
const WANTS_CERTIFICATE: [&str; 2] = ["alert: CertificateRequired", "alert: HandshakeFailure"];

/// Alerts about the certificate of this client.
const DISTRUSTS_CLIENT: [&str; 4] =
    ["alert: UnknownCA", "alert: BadCertificate", "alert: CertificateExpired", "alert: CertificateUnknown"];

/// # Errors
/// When a file cannot be read or contains something else.
pub(super) fn configuration(files: &Files) -> Result<Arc<ClientConfig>, BrokerError> {
    let failed = |error: rustls::Error| BrokerError::Invalid(format!("cannot set up TLS: {error}"));
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots(files.authorities.as_deref())?);
    let config = match &files.client {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let wrong = |error: rustls::Error| {
                BrokerError::Invalid(format!(
                    "cannot use the client certificate in {certificate} with the key in {key}: {error}"
                ))
            };
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
                BrokerError::Invalid(format!("cannot read the private key in {key}: {error}"))
            })?;
            config.with_client_auth_cert(chain, key).map_err(wrong)?
        }
    };
    Ok(Arc::new(config))
}

fn roots(file: Option<&str>) -> Result<RootCertStore, BrokerError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| {
                    BrokerError::Invalid(format!("cannot use a certificate in {path}: {error}"))
                })?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(BrokerError::Invalid(
            "there are no certificates of authorities to check the broker's by: name a file by ?cacert=FILE in the URL, or \
             install the system's"
                .to_owned(),
        ));
    }
    Ok(roots)
}

/// The certificates in a file.
fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, BrokerError> {
    let wrong = |error: &dyn std::fmt::Display| {
        BrokerError::Invalid(format!("cannot read certificates from {path}: {error}"))
    };
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?.collect();
    match found.map_err(|error| wrong(&error))? {
        found if found.is_empty() => Err(wrong(&"it contains none in PEM format")),
        found => Ok(found),
    }
}

/// The refusal that the text of a lost connection is about, if it is about certificates.
pub(super) fn refusal(text: &str) -> Option<BrokerError> {
    let has = |alerts: &[&str]| alerts.iter().any(|alert| text.contains(alert));
    let advice = if text.contains("invalid peer certificate") {
        "no trusted authority has issued the broker's certificate for this host; ?cacert=FILE in the URL names a file with \
         the certificates to trust"
    } else if has(&WANTS_CERTIFICATE) {
        "the broker may require a certificate of this client; ?cert=FILE&key=FILE in the URL names it and its private key"
    } else if has(&DISTRUSTS_CLIENT) {
        "the broker does not trust the certificate of this client, which ?cert=FILE in the URL names"
    } else {
        return None;
    };
    Some(BrokerError::Refused(format!("{text}: {advice}")))
}
