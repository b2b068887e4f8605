//! The calls of a server that an election needs.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{
    Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;
use windlass_api as api;

use crate::{
    Campaign, CoordinatorError, Leader,
    address::Address,
    http::{self, Answer, Http, Request},
};

/// A client of servers on one store.
#[derive(Debug)]
pub(super) struct Api {
    http: Http,
    has_others: bool,
    /// The path of the URL, with a slash before it; empty without one.
    prefix: String,
    /// The headers of every call.
    headers: HeaderMap,
}

/// A number for a campaign.
pub(super) fn number() -> String {
    Uuid::new_v4().to_string()
}

impl Api {
    pub(super) fn new(http: Http, address: &Address, token: Option<&str>) -> Result<Self, CoordinatorError> {
        let prefix = if address.prefix.is_empty() { String::new() } else { format!("/{}", address.prefix) };
        let has_others = address.hosts.len() > 1;
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| {
                CoordinatorError::Invalid("the access token has characters that no token has".to_owned())
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Self { http, has_others, prefix, headers })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/v1/leaders/{}", self.prefix, utf8_percent_encode(name, NON_ALPHANUMERIC))
    }

    /// How long one address may take. A call is a commit, which takes long on a busy disk: with one address it has more
    /// time, as nobody else can be asked.
    pub(super) fn patience(&self, lease: Duration) -> Duration {
        http::patience(lease) * if self.has_others { 1 } else { 2 }
    }

    /// Campaigns, for up to `wait`, or renews. Returns the fence if the candidate leads.
    pub(super) async fn campaign(
        &self,
        campaign: &Campaign,
        number: &str,
        renews: Option<u64>,
        wait: Duration,
        patience: Duration,
    ) -> Result<Option<u64>, CoordinatorError> {
        let body = api::Campaign {
            campaign: number.to_owned(),
            id: campaign.id.clone(),
            value: campaign.value.clone(),
            lease_ms: ms(campaign.lease),
            wait_ms: ms(wait),
            renews,
        };
        let answer = self.post(&self.path(&campaign.name), &body, patience).await?;
        let election: api::Election = read(&answer)?;
        let leader = election.leader.filter(|_| election.leads);
        Ok(leader.map(|leader| leader.fence))
    }

    /// Resigns.
    pub(super) async fn resign(
        &self,
        name: &str,
        number: &str,
        patience: Duration,
    ) -> Result<(), CoordinatorError> {
        let body = api::Resignation { campaign: number.to_owned() };
        self.post(&format!("{}/resign", self.path(name)), &body, patience).await.map(drop)
    }

    /// The leader of a name.
    pub(super) async fn leader(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Option<Leader>, CoordinatorError> {
        let (headers, body) = (self.headers.clone(), String::new());
        let request = Request { method: Method::GET, path: self.path(name), headers, body, patience };
        let answer = self.http.call(&request).await?;
        if answer.status == StatusCode::NOT_FOUND && problem(&answer, "type").ends_with("no-leader") {
            return Ok(None);
        }
        let api::Leader { id, value, fence, .. } = read(&accepted(answer)?)?;
        Ok(Some(Leader { id, value, fence }))
    }

    async fn post(
        &self,
        path: &str,
        body: &impl serde::Serialize,
        patience: Duration,
    ) -> Result<Answer, CoordinatorError> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = serde_json::to_string(body)
            .map_err(|error| CoordinatorError::Invalid(format!("a request cannot be written: {error}")))?;
        let request = Request { method: Method::POST, path: path.to_owned(), headers, body, patience };
        accepted(self.http.call(&request).await?)
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The answer, unless the server refuses.
fn accepted(answer: Answer) -> Result<Answer, CoordinatorError> {
    match answer.status {
        status if status.is_success() => Ok(answer),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(CoordinatorError::Refused(answer.text())),
        // Others changed the lock at the same time.
        StatusCode::CONFLICT => Err(CoordinatorError::Unavailable(problem(&answer, "detail"))),
        StatusCode::NOT_FOUND => Err(CoordinatorError::Invalid(format!(
            "the server does not elect leaders: {}",
            problem(&answer, "detail")
        ))),
        _ => Err(CoordinatorError::Invalid(problem(&answer, "detail"))),
    }
}

/// A field of a problem document, or the body.
fn problem(answer: &Answer, field: &str) -> String {
    let document: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let field = document.and_then(|document| document.get(field)?.as_str().map(str::to_owned));
    field.unwrap_or_else(|| answer.text())
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, CoordinatorError> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        CoordinatorError::Unavailable(format!("an answer that no Windlass server gives: {error}"))
    })
}
