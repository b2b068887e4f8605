//! The call by which workers live.

use std::time::Duration;

use reqwest::Method;
use windlass_api::{ExchangeAnswer, ExchangeRequest, StepMessage};

use super::{
    Client,
    request::{ANSWER_TIMEOUT, Details, encode},
};
use crate::Error;

impl Client {
    /// One exchange: takes attempts, reports them, keeps the session. [`crate::Worker`] does all of this by itself.
    ///
    /// # Errors
    /// [`Error::Refused`] if the request as a whole is malformed; single reports are answered one by one.
    pub async fn exchange(&self, request: &ExchangeRequest) -> Result<ExchangeAnswer, Error> {
        self.exchange_within(request, Duration::from_millis(request.wait_ms) + ANSWER_TIMEOUT).await
    }

    /// The same; an answer that takes longer counts as lost.
    pub(crate) async fn exchange_within(
        &self,
        request: &ExchangeRequest,
        timeout: Duration,
    ) -> Result<ExchangeAnswer, Error> {
        let details = Details { body: Some(encode(request)?), timeout: Some(timeout), ..Details::default() };
        self.call(Method::POST, &["v1", "worker", "exchange"], details).await
    }

    /// The whole of a step message that was too large for its broker.
    ///
    /// # Errors
    /// [`Error::Refused`] with 404 when there is no such attempt any more.
    pub async fn step_message(&self, token: &str) -> Result<StepMessage, Error> {
        self.get(&["v1", "worker", "attempts", token]).await
    }
}
