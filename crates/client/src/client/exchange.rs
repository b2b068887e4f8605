//! The calls of workers.

use std::time::Duration;

use reqwest::Method;
use windlass_api::{ExchangeAnswer, ExchangeRequest, StepMessage};

use super::{
    Client,
    request::{ANSWER_TIMEOUT, Details, encode},
};
use crate::Error;

impl Client {
    /// Sends one exchange: claims attempts, reports results, keeps the session. [`crate::Worker`] does all of
    /// this by itself.
    ///
    /// # Errors
    /// [`Error::Refused`] if the request as a whole is malformed. Each report has its own answer.
    pub async fn exchange(&self, request: &ExchangeRequest) -> Result<ExchangeAnswer, Error> {
        self.exchange_within(request, Duration::from_millis(request.wait_ms) + ANSWER_TIMEOUT).await
    }

    /// Like [`Self::exchange`], but an answer that takes longer than `timeout` counts as lost.
    pub(crate) async fn exchange_within(
        &self,
        request: &ExchangeRequest,
        timeout: Duration,
    ) -> Result<ExchangeAnswer, Error> {
        let details = Details { body: Some(encode(request)?), timeout: Some(timeout), ..Details::default() };
        self.call(Method::POST, &["v1", "worker", "exchange"], details).await
    }

    /// The complete step message, when it was too large for the broker.
    ///
    /// # Errors
    /// [`Error::Refused`] with 404 when the attempt no longer exists.
    pub async fn step_message(&self, token: &str) -> Result<StepMessage, Error> {
        self.get(&["v1", "worker", "attempts", token]).await
    }
}
