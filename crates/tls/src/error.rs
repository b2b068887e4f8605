//! Why TLS cannot be set up.

use std::path::PathBuf;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or has something else in it.
    #[error("cannot read {what} from {}: {message}", .path.display())]
    File {
        /// What it should have.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// There is nobody to trust.
    #[error(
        "there are no CA certificates to check the other side by: name a file with them, or install the system's"
    )]
    NoAuthorities,
    /// The private key belongs to another certificate, or the library cannot use one of them.
    #[error("cannot use the certificate in {} with the private key in {}: {message}", .certificate.display(), .key.display())]
    Identity {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the private key.
        key: PathBuf,
        /// The reason of the library.
        message: String,
    },
    /// The library refuses.
    #[error("cannot set up TLS: {0}")]
    Library(String),
}
