//! The metrics of a server.

use reqwest::Method;

use super::{
    Client,
    request::{ANSWER_TIMEOUT, Details},
};
use crate::Error;

impl Client {
    /// The metrics of the server, in the text format of Prometheus.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn metrics(&self) -> Result<String, Error> {
        let exchange = async {
            let response = self.send(Method::GET, &["metrics"], Details::default()).await?;
            response.text().await.map_err(|error| self.unreachable(error))
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await;
        answer.unwrap_or_else(|_| Err(self.unreachable(format!("no answer in {ANSWER_TIMEOUT:?}"))))
    }
}
