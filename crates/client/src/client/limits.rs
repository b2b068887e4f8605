//! Limits on what is handed out.

use reqwest::Method;
use windlass_api::{Limit, List, SetLimit};

use super::{
    Client,
    request::{Details, encode},
};
use crate::Error;

impl Client {
    /// All limits with who counts under them.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn limits(&self) -> Result<List<Limit>, Error> {
        self.all_pages(&["v1", "limits"], &[]).await
    }

    /// One limit with who counts under it.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is none of this name.
    pub async fn limit(&self, name: &str) -> Result<Limit, Error> {
        self.get(&["v1", "limits", name]).await
    }

    /// Sets a limit; one of the same name is replaced.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 422 if it limits nothing, or everything.
    pub async fn set_limit(&self, name: &str, limit: &SetLimit) -> Result<Limit, Error> {
        let details = Details { body: Some(encode(limit)?), ..Details::default() };
        self.call(Method::PUT, &["v1", "limits", name], details).await
    }

    /// Removes a limit and tells how it was.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is none of this name.
    pub async fn remove_limit(&self, name: &str) -> Result<Limit, Error> {
        self.call(Method::DELETE, &["v1", "limits", name], Details::default()).await
    }
}
