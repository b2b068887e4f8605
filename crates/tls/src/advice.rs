//! What to do about a failed connection.

use std::{error::Error, io};

use rustls::{AlertDescription, CertificateError, Error as Refusal, InvalidMessage};

/// A connection that failed because of TLS, and what a client can do about it.
#[derive(Debug, thiserror::Error)]
#[error("{refusal}: {advice}")]
pub struct Refused {
    refusal: Refusal,
    advice: &'static str,
}

impl Refused {
    /// Whether the same client can connect later: the server's certificate has expired or is not valid yet. Servers read
    /// renewed certificates while they run. Clients read their files once.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        matches!(
            self.refusal,
            Refusal::InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }
            )
        )
    }
}

/// Why a connection failed, if that was TLS and a client can do something about it.
#[must_use]
pub fn refused(error: &(dyn Error + 'static)) -> Option<Refused> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(refusal) = refusal(error) {
            return Some(Refused { refusal: refusal.clone(), advice: advice(refusal)? });
        }
        cause = error.source();
    }
    None
}

/// The refusal of the library. An error of input and output has it inside, and does not count it as its source.
fn refusal<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Refusal> {
    let inside = || refusal(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref().or_else(inside)
}

fn advice(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::InvalidCertificate(error) => match error {
            // A signature is bad if another CA of the same name is trusted here.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "no CA that is trusted here has issued the server's certificate: name the file with its CA certificate \
                 (--ca-file, WINDLASS_CA_FILE)"
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
            _ => "the server's certificate cannot be accepted: give the server another one",
        },
        Refusal::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server speaks no TLS at this address: use http://, or the address where it does"
        }
        Refusal::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server asks for a client certificate: name its file and that of its key (--client-cert, --client-key)"
        }
        Refusal::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::DecryptError,
        ) => "the server does not trust the client certificate, or it has expired",
        _ => return None,
    })
}
