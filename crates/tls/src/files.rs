//! Certificates and keys in files in PEM format.

use std::path::{Path, PathBuf};

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
};

use crate::TlsError;

/// What one side proves who it is with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// File with its certificate, followed by the intermediate CA certificates.
    pub certificate: PathBuf,
    /// File with the private key of the certificate.
    pub key: PathBuf,
}

impl Identity {
    pub(crate) fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| no_key(&self.key, &error))?;
        Ok((certificates(&self.certificate)?, key))
    }

    pub(crate) fn refused(&self, error: &rustls::Error) -> TlsError {
        let message = match error {
            rustls::Error::InconsistentKeys(_) => "the key belongs to another certificate".to_owned(),
            error => error.to_string(),
        };
        TlsError::Identity { certificate: self.certificate.clone(), key: self.key.clone(), message }
    }
}

/// The CA certificates in a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::File {
            what: "CA certificates",
            path: path.into(),
            message: error.to_string(),
        })?;
    }
    Ok(roots)
}

/// The CA certificates that the system trusts.
pub(crate) fn authorities_of_system() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates_of_system());
    if roots.is_empty() { Err(TlsError::NoAuthorities) } else { Ok(roots) }
}

/// These CA certificates.
pub(crate) fn certificates_of_system() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// The certificates in a file, of which there is one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificates";
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(what, path, &error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| wrong(what, path, &error))?;
    if found.is_empty() {
        return Err(wrong(what, path, &pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// Why a file has no private key that can be used.
fn no_key(path: &Path, error: &pem::Error) -> TlsError {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // PKCS #8 says it in the first line, older formats in a header.
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        let message = "it is encrypted with a passphrase: decrypt it, for example with `openssl pkey -in FILE -out NEW`";
        return TlsError::File { what: "a private key", path: path.into(), message: message.to_owned() };
    }
    wrong("a private key", path, error)
}

fn wrong(what: &'static str, path: &Path, error: &pem::Error) -> TlsError {
    let message = match error {
        pem::Error::NoItemsFound => "it contains none in PEM format".to_owned(),
        pem::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    };
    TlsError::File { what, path: path.into(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_is_named_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        for text in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGj\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIGj\n-----END EC PRIVATE KEY-----\n",
        ] {
            std::fs::write(&path, text).unwrap();
            let error = PrivateKeyDer::from_pem_file(&path).unwrap_err();
            assert!(no_key(&path, &error).to_string().contains("encrypted with a passphrase"), "{text}");
        }
    }
}
