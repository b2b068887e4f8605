//! The metrics of a server.

use reqwest::Method;

use super::{Client, request::Details};
use crate::Error;

impl Client {
    /// The metrics of the server, in the text format of Prometheus.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn metrics(&self) -> Result<String, Error> {
        let body = self.body(Method::GET, &["metrics"], Details::default()).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
