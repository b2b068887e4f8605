//! The access token that a client sends.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use reqwest::header::HeaderValue;

use super::header_value;
use crate::Error;

/// The access token. Clones of a client share it.
#[derive(Debug)]
pub(super) struct AccessToken {
    /// The file that it is in; none = it does not change.
    file: Option<PathBuf>,
    /// What is sent as `Authorization`; not shown by `Debug`.
    header: RwLock<HeaderValue>,
}

impl AccessToken {
    /// None if there is nothing to send.
    pub(super) fn new(token: &str) -> Option<Self> {
        Some(Self { file: None, header: RwLock::new(bearer(token)?) })
    }

    /// Reads the token from this file.
    pub(super) fn read(file: PathBuf) -> Result<Self, Error> {
        let shown = file.display();
        let text = fs::read_to_string(&file)
            .map_err(|error| Error::Invalid(format!("cannot read the token from {shown}: {error}")))?;
        let header = bearer(&text)
            .ok_or_else(|| Error::Invalid(format!("the file {shown} is empty: write the token into it")))?;
        Ok(Self { file: Some(file), header: RwLock::new(header) })
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.header.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the file again. True if it has another token now, which is sent from then on.
    pub(super) fn read_again(&self) -> bool {
        // Somebody may be writing it: without a token in it the last one stays.
        let read = self.file.as_ref().and_then(|file| bearer(&fs::read_to_string(file).ok()?));
        let Some(read) = read else { return false };
        let mut header = self.header.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *header, read.clone()) != read
    }
}

/// White space around the token is ignored.
fn bearer(token: &str) -> Option<HeaderValue> {
    let token = Some(token.trim()).filter(|token| !token.is_empty())?;
    let mut value = header_value(&format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_and_one_without_a_token_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let read = || AccessToken::read(file.clone());
        assert!(read().unwrap_err().to_string().contains("cannot read the token from"));
        fs::write(&file, " \n").unwrap();
        assert!(read().unwrap_err().to_string().contains("is empty"));
        fs::write(&file, "first\n").unwrap();
        let token = read().unwrap();
        assert_eq!(token.header(), "Bearer first");
        assert!(!token.read_again(), "it is the same");
        for nothing in ["", "first\n\n"] {
            fs::write(&file, nothing).unwrap();
            assert!(!token.read_again(), "{nothing:?}");
        }
        fs::remove_file(&file).unwrap();
        assert!(!token.read_again());
        fs::write(&file, "second").unwrap();
        assert!(token.read_again() && !token.read_again());
        assert_eq!(token.header(), "Bearer second");
        assert!(!format!("{token:?}").contains("second"));
        assert!(!AccessToken::new("fixed").unwrap().read_again());
    }
}
