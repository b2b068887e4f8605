//! TLS to brokers: the files that a URL names, and what a refusal means.

use std::sync::Arc;

use windlass_tls::{ClientConfig, ClientFiles, TlsError};

use crate::BrokerError;

/// Advice: the broker's certificate is not trusted.
const DISTRUSTED: &str = "no trusted CA has issued the broker's certificate for this host; ?cacert=FILE in the URL names a \
                          file with the certificates to trust";

/// Advice: the client certificate is missing.
const WANTED: &str = "the broker may require a client certificate; ?cert=FILE&key=FILE in the URL names it and its private key";

/// Advice: the client certificate is not trusted.
const CLIENT_DISTRUSTED: &str =
    "the broker does not trust the client certificate, which ?cert=FILE in the URL names";

/// Advice: some brokers send the same alert for a missing client certificate and for an untrusted one.
const CLIENT_REFUSED: &str = "the broker requires a client certificate that it trusts; ?cert=FILE&key=FILE in the URL names it and its private key";

/// Advice: the broker's certificate has expired.
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

/// The error for a failed connection, if its message is about certificates.
#[cfg(any(feature = "mqtt", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
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
