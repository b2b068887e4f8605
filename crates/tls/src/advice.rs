//! What to do about a failed connection.

use std::{error::Error, io};

use rustls::{AlertDescription, CertificateError, Error as Refusal, InvalidMessage};

/// What a client can do about a failed connection, if TLS is why it failed.
#[must_use]
pub fn advice(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(refusal) = refusal(error) {
            return of_refusal(refusal);
        }
        cause = error.source();
    }
    None
}

/// The refusal of the library. An error of input and output has it inside, and does not count it as its source.
fn refusal<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Refusal> {
    let inner = || error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref();
    error.downcast_ref().or_else(inner)
}

fn of_refusal(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => {
                "no authority that is trusted here has issued the server's certificate: name a file with the certificate \
                 of its authority (--ca-file, WINDLASS_CA_FILE)"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for another host name: use a name that is in it"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired: renew it, and check the clock of this machine"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: check the clock of this machine"
            }
            _ => return None,
        },
        Refusal::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server speaks no TLS at this address: use http://, or the address where it does"
        }
        Refusal::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server asks for a certificate of the client: name its file and that of its key (--client-cert, --client-key)"
        }
        Refusal::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::DecryptError,
        ) => "the server does not trust the certificate of the client, or it has expired",
        _ => return None,
    })
}
