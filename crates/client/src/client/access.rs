//! Access tokens.

use reqwest::Method;
use windlass_api::{AccessToken, AccessTokenCreated, CreateAccessToken, List};

use super::{
    Client,
    request::{Details, encode},
};
use crate::Error;

impl Client {
    /// Creates an access token. Only this answer has its secret.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 409 if a token has this name, and 422 if it cannot work as described.
    pub async fn create_access_token(&self, token: &CreateAccessToken) -> Result<AccessTokenCreated, Error> {
        let details = Details { body: Some(encode(token)?), ..Details::default() };
        self.call(Method::POST, &["v1", "tokens"], details).await
    }

    /// All access tokens, without their secrets.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn access_tokens(&self) -> Result<List<AccessToken>, Error> {
        self.all_pages(&["v1", "tokens"], &[]).await
    }

    /// Revokes an access token. Returns what it was.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no token has this name.
    pub async fn revoke_access_token(&self, name: &str) -> Result<AccessToken, Error> {
        self.call(Method::DELETE, &["v1", "tokens", name], Details::default()).await
    }
}
