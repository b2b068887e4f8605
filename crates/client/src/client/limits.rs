//! Limits on concurrency and rates.

use reqwest::Method;
use windlass_api::{Limit, List, SetLimit};

use super::{
    Client,
    request::{Details, encode},
};
use crate::Error;

impl Client {
    /// All limits, with the attempts that count under them.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn limits(&self) -> Result<List<Limit>, Error> {
        self.all_pages(&["v1", "limits"], &[]).await
    }

    /// One limit, with the attempts that count under it.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no limit has this name.
    pub async fn limit(&self, name: &str) -> Result<Limit, Error> {
        self.get(&["v1", "limits", name]).await
    }

    /// Sets a limit, or replaces the one with this name.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 422 if it limits nothing, or everything.
    pub async fn set_limit(&self, name: &str, limit: &SetLimit) -> Result<Limit, Error> {
        let details = Details { body: Some(encode(limit)?), ..Details::default() };
        self.call(Method::PUT, &["v1", "limits", name], details).await
    }

    /// Removes a limit. Returns its last state.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no limit has this name.
    pub async fn remove_limit(&self, name: &str) -> Result<Limit, Error> {
        self.call(Method::DELETE, &["v1", "limits", name], Details::default()).await
    }
}
