//! TLS to brokers: the files that a URL names, and what a refusal means.

use std::sync::Arc;

use windlass_tls::{ClientConfig, ClientFiles, TlsError};

use crate::BrokerError;

/// The advice for an untrusted certificate of a broker.
const DISTRUSTED: &str = "no trusted authority has issued the broker's certificate for this host; ?cacert=FILE in the URL names a \
                          file with the certificates to trust";

/// The advice for a missing certificate of this client.
const WANTED: &str = "the broker may require a certificate of this client; ?cert=FILE&key=FILE in the URL names it and its private key";

/// The advice for an untrusted certificate of this client.
const CLIENT_DISTRUSTED: &str =
    "the broker does not trust the certificate of this client, which ?cert=FILE in the URL names";

/// The advice where brokers differ: some say the same of a missing certificate and of an untrusted one.
const CLIENT_REFUSED: &str = "the broker requires a certificate of this client that it trusts; ?cert=FILE&key=FILE in the URL names it and its private key";

/// The advice for a certificate of a broker that was valid once.
const EXPIRED: &str = "the broker's certificate has expired: renew it, and check the clock of this machine";

/// Parts of messages of the TLS libraries, in lower case without blanks, and what they mean. The first one that is in a message
/// counts. With TLS 1.2, a missing certificate is a failed handshake.
const MEANINGS: [(&str, &str); 10] = [
    ("invalidpeercertificate:expired", EXPIRED),
    ("invalidpeercertificate:certificateexpired", EXPIRED),
    ("invalidpeercertificate", DISTRUSTED),
    ("certificateverifyfailed", DISTRUSTED),
    ("certificaterequired", WANTED),
    ("handshakefailure", WANTED),
    ("unknownca", CLIENT_DISTRUSTED),
    ("badcertificate", CLIENT_REFUSED),
    ("certificateexpired", CLIENT_DISTRUSTED),
    ("certificateunknown", CLIENT_DISTRUSTED),
];

/// Reads the files.
///
/// # Errors
/// When a file cannot be read or contains something else.
pub(crate) fn configuration(files: &ClientFiles) -> Result<Arc<ClientConfig>, BrokerError> {
    windlass_tls::client_config(files).map_err(|error| {
        let hint = match error {
            TlsError::NoAuthorities => " (?cacert=FILE in the URL)",
            _ => "",
        };
        BrokerError::Invalid(format!("{error}{hint}"))
    })
}

/// What to do about a failed connection, if its message is about certificates.
pub(crate) fn advice(message: &str) -> Option<&'static str> {
    let message = message.to_ascii_lowercase().replace(' ', "");
    MEANINGS.iter().find(|(part, _)| message.contains(part)).map(|(_, advice)| *advice)
}

/// The refusal that the message of a failed connection is about, if it is about certificates.
#[cfg(any(feature = "mqtt", feature = "rabbitmq", feature = "redis"))]
pub(crate) fn refusal(message: &str) -> Option<BrokerError> {
    Some(BrokerError::Refused(format!("{message}: {}", advice(message)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_libraries_are_understood() {
        for (message, expected) in [
            ("invalid peer certificate: UnknownIssuer", DISTRUSTED),
            ("invalid peer certificate: certificate expired: verification time 2", EXPIRED),
            ("SSL handshake failed: error:0A000086:SSL routines::certificate verify failed", DISTRUSTED),
            ("received fatal alert: CertificateRequired", WANTED),
            ("tlsv13 alert certificate required: SSL alert number 116", WANTED),
            ("received fatal alert: UnknownCA", CLIENT_DISTRUSTED),
            ("sslv3 alert certificate unknown", CLIENT_DISTRUSTED),
        ] {
            assert_eq!(advice(message), Some(expected), "{message}");
        }
        assert_eq!(advice("Connection refused"), None);
    }
}
