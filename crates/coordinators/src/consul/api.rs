//! The calls of Consul's HTTP API: those that an election needs, and those that other calls are made of.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::{
    Method, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    CoordinatorError,
    address::Address,
    http::{Answer, Http, Request},
};

const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");

const INDEX: HeaderName = HeaderName::from_static("x-consul-index");

/// A client of a cluster.
#[derive(Debug)]
pub(super) struct Api {
    http: Http,
    headers: HeaderMap,
}

/// A key as it is now.
#[derive(Debug)]
pub(super) struct Entry {
    /// What a wait for the next change begins with.
    pub(super) index: u64,
    /// None if the key does not exist.
    pub(super) found: Option<Found>,
}

/// A key that exists.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) value: Vec<u8>,
    /// The session that locks it.
    pub(super) session: Option<String>,
    pub(super) modify_index: u64,
}

impl Entry {
    /// The key's `ModifyIndex`, if it is this session's.
    pub(super) fn fence_of(&self, session: &str) -> Option<u64> {
        let found = self.found.as_ref()?;
        (found.session.as_deref() == Some(session)).then_some(found.modify_index)
    }

    /// Whether any session locks it.
    pub(super) fn is_locked(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.session.is_some())
    }
}

impl Api {
    pub(super) fn new(address: &Address) -> Result<Self, CoordinatorError> {
        let mut headers = HeaderMap::new();
        if let Some(token) = address.password.as_ref().filter(|token| !token.is_empty()) {
            let invalid =
                |_| CoordinatorError::Invalid("a token of Consul has only visible characters".to_owned());
            let mut token = HeaderValue::from_str(token).map_err(invalid)?;
            token.set_sensitive(true);
            headers.insert(TOKEN, token);
        }
        Ok(Self { http: Http::of(address)?, headers })
    }

    /// The same for answers of up to this length.
    pub(super) fn with_answers_up_to(self, bytes: usize) -> Self {
        Self { http: self.http.with_answers_up_to(bytes), headers: self.headers }
    }

    /// Creates a session that only ends by its TTL, or when it is destroyed.
    pub(super) async fn create_session(
        &self,
        name: &str,
        ttl: Duration,
        lock_delay: Duration,
        patience: Duration,
    ) -> Result<String, CoordinatorError> {
        let session = json!({
            "Name": name,
            "TTL": format!("{}ms", ttl.as_millis()),
            "LockDelay": format!("{}ms", lock_delay.as_millis()),
            "Behavior": "release",
            // Otherwise the session ends when its node seems to have failed.
            "Checks": [],
            "NodeChecks": [],
        });
        let answer = self.put("session/create", session.to_string(), patience).await.map_err(|error| {
            // Consul answers as if it had failed.
            if error.to_string().contains("Invalid Session TTL") { too_short(&error) } else { error }
        })?;
        let answer: Value = understand(&answer)?;
        answer["ID"].as_str().map(str::to_owned).ok_or_else(|| strange(&answer))
    }

    /// Renews a session.
    pub(super) async fn renew(&self, session: &str, patience: Duration) -> Result<(), CoordinatorError> {
        let answer = self.put(&format!("session/renew/{session}"), String::new(), patience).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Err(CoordinatorError::Lost("the session has ended".to_owned()));
        }
        understand::<Value>(&answer).map(drop)
    }

    /// Ends a session. A key that it still locks is released, and cannot be locked during the lock-delay.
    pub(super) async fn destroy(&self, session: &str, patience: Duration) -> Result<(), CoordinatorError> {
        let answer = self.put(&format!("session/destroy/{session}"), String::new(), patience).await?;
        understand::<Value>(&answer).map(drop)
    }

    /// Locks a key, and returns its `ModifyIndex`. None if another session locks it, or the lock-delay goes on.
    pub(super) async fn lock(
        &self,
        key: &str,
        value: &str,
        session: &str,
        patience: Duration,
    ) -> Result<Option<u64>, CoordinatorError> {
        let answer = self.transact("lock", key, value, session, patience).await?;
        if answer.status == StatusCode::CONFLICT {
            return if answer.text().contains("invalid session") {
                Err(CoordinatorError::Lost("the session has ended".to_owned()))
            } else {
                Ok(None)
            };
        }
        let answer: Value = understand(&answer)?;
        let index = answer["Results"][0]["KV"]["ModifyIndex"].as_u64();
        index.map(Some).ok_or_else(|| strange(&answer))
    }

    /// Releases a key, which stays with its value. Nothing happens if the session does not lock it.
    pub(super) async fn unlock(
        &self,
        key: &str,
        value: &str,
        session: &str,
        patience: Duration,
    ) -> Result<(), CoordinatorError> {
        let answer = self.transact("unlock", key, value, session, patience).await?;
        if answer.status == StatusCode::CONFLICT { Ok(()) } else { understand::<Value>(&answer).map(drop) }
    }

    async fn transact(
        &self,
        verb: &str,
        key: &str,
        value: &str,
        session: &str,
        patience: Duration,
    ) -> Result<Answer, CoordinatorError> {
        let value = BASE64_STANDARD.encode(value);
        let operation = json!([{ "KV": { "Verb": verb, "Key": key, "Value": value, "Session": session } }]);
        self.commit(&operation, patience).await
    }

    /// Sends a transaction. Its status is 409 if Consul has refused one of the operations.
    pub(super) async fn commit(
        &self,
        operations: &Value,
        patience: Duration,
    ) -> Result<Answer, CoordinatorError> {
        self.put("txn", operations.to_string(), patience).await
    }

    /// Reads a key from a leader that has just confirmed that it is one.
    pub(super) async fn read(&self, key: &str, patience: Duration) -> Result<Entry, CoordinatorError> {
        self.look(format!("/v1/kv/{key}?consistent"), patience).await
    }

    /// Waits until a key changes after this index, for up to about `wait`.
    pub(super) async fn change(
        &self,
        key: &str,
        index: u64,
        wait: Duration,
        patience: Duration,
    ) -> Result<Entry, CoordinatorError> {
        // Consul adds up to a sixteenth.
        let path = format!("/v1/kv/{key}?index={index}&wait={}ms", wait.as_millis().max(1));
        self.look(path, wait + wait / 16 + patience).await
    }

    async fn look(&self, path: String, patience: Duration) -> Result<Entry, CoordinatorError> {
        let (answer, index) = self.get(path, patience).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(Entry { index, found: None });
        }
        let answer: Value = understand(&answer)?;
        let found = &answer[0];
        let value = found["Value"].as_str().and_then(|value| BASE64_STANDARD.decode(value).ok());
        let session = found["Session"].as_str().filter(|session| !session.is_empty()).map(str::to_owned);
        let modify_index = found["ModifyIndex"].as_u64().ok_or_else(|| strange(&answer))?;
        Ok(Entry { index, found: Some(Found { value: value.unwrap_or_default(), session, modify_index }) })
    }

    /// The answer to a `GET`, and its index, with which the next blocking query begins.
    pub(super) async fn get(
        &self,
        path: String,
        patience: Duration,
    ) -> Result<(Answer, u64), CoordinatorError> {
        let headers = self.headers.clone();
        let request = Request { method: Method::GET, path, headers, body: String::new(), patience };
        let answer = self.http.call(&request).await?;
        let index = answer.headers.get(INDEX).and_then(|index| index.to_str().ok()?.parse().ok());
        // A wait with 0 would return at once, again and again.
        Ok((answer, index.unwrap_or(0).max(1)))
    }

    async fn put(&self, path: &str, body: String, patience: Duration) -> Result<Answer, CoordinatorError> {
        let (path, headers) = (format!("/v1/{path}"), self.headers.clone());
        self.http.call(&Request { method: Method::PUT, path, headers, body, patience }).await
    }
}

fn too_short(error: &CoordinatorError) -> CoordinatorError {
    CoordinatorError::Invalid(format!(
        "the lease is too short for this Consul, whose minimum TTL is 10 s unless `session_ttl_min` is set: use a lease of \
         20/9 of the minimum TTL or more ({error})"
    ))
}

/// The JSON of an answer, or what is wrong.
pub(super) fn understand<T: DeserializeOwned>(answer: &Answer) -> Result<T, CoordinatorError> {
    let why = || format!("{}: {}", answer.status, answer.text());
    match answer.status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(CoordinatorError::Refused(why())),
        _ => return Err(CoordinatorError::Invalid(format!("Consul does not accept a request: {}", why()))),
    }
    serde_json::from_slice(&answer.body)
        .map_err(|error| CoordinatorError::Unavailable(format!("Consul's answer is not JSON: {error}")))
}

fn strange(answer: &Value) -> CoordinatorError {
    let answer: String = answer.to_string().chars().take(300).collect();
    CoordinatorError::Unavailable(format!("Consul's answer lacks a field: {answer}"))
}
