//! The call by which workers live.

use std::time::Duration;

use reqwest::Method;
use windlass_api::{ExchangeAnswer, ExchangeRequest};

use super::{
    Client,
    request::{Details, encode},
};
use crate::Error;

impl Client {
    /// One exchange: takes attempts, reports them, keeps the session. [`crate::Worker`] does all of this by itself.
    ///
    /// # Errors
    /// [`Error::Refused`] if the request as a whole is malformed; single reports are answered one by one.
    pub async fn exchange(&self, request: &ExchangeRequest) -> Result<ExchangeAnswer, Error> {
        let details = Details {
            body: Some(encode(request)?),
            wait: Duration::from_millis(request.wait_ms),
            ..Details::default()
        };
        self.call(Method::POST, &["v1", "worker", "exchange"], details).await
    }
}
