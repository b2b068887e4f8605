//! One request to a receiver, and what its answer means. Requests are those of Standard Webhooks
//! (<https://www.standardwebhooks.com>).

use std::{sync::Arc, time::Duration};

use reqwest::{Client, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::json;
use windlass_core::{Failure, Json, Millis, Outcome, Secret};

use super::{
    address::CheckedDns,
    settings::{WebhookSettings, WebhookUrl},
};
use crate::{
    http::webhook_headers,
    outgoing::{client_for, explain, retry_after},
};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request may take as a whole.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest pause that a receiver may ask for.
const PAUSE_MAX: Millis = Millis::from_secs(3600);

/// A receiver may ask for a pause 100 times. Shorter pauses are lengthened, more each time, up to this one: so a message is sent
/// for about a day.
const PAUSE_LAST: Millis = Millis::from_secs(15 * 60);

/// Exit codes of attempts that fail: temporary, and for good.
const TEMPORARY: i32 = 75;
const REFUSED: i32 = 69;

/// Sends the messages of one webhook.
pub(super) struct Sender {
    client: Client,
    url: WebhookUrl,
    pub(super) secrets: Vec<Secret>,
    pub(super) in_flight: u32,
}

impl Sender {
    pub(super) fn new(settings: &WebhookSettings) -> anyhow::Result<Self> {
        let client = client_for(&settings.url.0, settings.ca_file.as_deref())?
            // A proxy would resolve the host name.
            .no_proxy()
            .dns_resolver(Arc::new(CheckedDns(Arc::new(settings.reach.clone()))))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .build()?;
        Ok(Self {
            client,
            url: settings.url.clone(),
            secrets: settings.secrets.clone(),
            in_flight: settings.in_flight,
        })
    }

    /// Sends a message, signed at this time in seconds since 1970.
    pub(super) async fn send(
        &self,
        id: &str,
        body: String,
        at: i64,
        attempt: u32,
        traceparent: Option<&str>,
    ) -> Outcome {
        let mut request = self.client.post(self.url.0.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        for (name, value) in webhook_headers(&self.secrets, id, at, body.as_bytes()) {
            request = request.header(name, value);
        }
        match request.body(body).send().await {
            // The body of an answer is not read: it may have no end, and an internal system may have sent it.
            Ok(response) => self.outcome(&response, attempt),
            Err(error) => failed(&format!("no answer from {}: {}", self.url, explain(error)), true),
        }
    }

    fn outcome(&self, response: &Response, attempt: u32) -> Outcome {
        let status = response.status();
        if status.is_success() {
            return Outcome::Succeeded(Json::parse(&json!({ "status": status.as_u16() }).to_string()).ok());
        }
        let message = format!("{} answers {status}", self.url);
        match (status, retry_after(response)) {
            (StatusCode::GONE, _) => {
                failed(&format!("{message}: the receiver wants no more messages"), false)
            }
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(seconds)) => {
                let delay = Millis::from_secs(seconds).max(least_pause(attempt)).min(PAUSE_MAX);
                Outcome::RetryLater { delay: Some(delay), message: message.into() }
            }
            _ if status.is_redirection() => {
                failed(&format!("{message}: redirects are not followed; correct the URL"), true)
            }
            _ => failed(&message, true),
        }
    }
}

/// The shortest pause after an attempt with this number: 1 s, 2 s, 4 s and so on.
fn least_pause(attempt: u32) -> Millis {
    Millis::from_secs(1).doubled(attempt.saturating_sub(1)).min(PAUSE_LAST)
}

/// An attempt that has failed; another one may succeed if `retryable`.
pub(super) fn failed(message: &str, retryable: bool) -> Outcome {
    let code = if retryable { TEMPORARY } else { REFUSED };
    Outcome::Failed(Failure { message: message.into(), code, retryable })
}
