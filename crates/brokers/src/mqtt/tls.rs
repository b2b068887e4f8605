//! TLS to an MQTT broker.

use std::sync::Arc;

use windlass_tls::{ClientConfig, ClientFiles, TlsError};

use crate::BrokerError;

/// How the library reports an alert of the broker. With TLS 1.2, a missing certificate is a failed handshake.
const WANTS_CERTIFICATE: [&str; 2] = ["alert: CertificateRequired", "alert: HandshakeFailure"];

/// Alerts about the certificate of this client.
const DISTRUSTS_CLIENT: [&str; 4] =
    ["alert: UnknownCA", "alert: BadCertificate", "alert: CertificateExpired", "alert: CertificateUnknown"];

/// The files are read for each connection, since certificates are replaced while programs run.
///
/// # Errors
/// When a file cannot be read or contains something else.
pub(super) fn configuration(files: &ClientFiles) -> Result<Arc<ClientConfig>, BrokerError> {
    windlass_tls::client_config(files).map_err(|error| {
        let hint = match error {
            TlsError::NoAuthorities => " (?cacert=FILE in the URL)",
            _ => "",
        };
        BrokerError::Invalid(format!("{error}{hint}"))
    })
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
