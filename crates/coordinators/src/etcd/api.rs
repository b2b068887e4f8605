//! The calls of etcd's JSON gateway that an election needs.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::{
    Method, StatusCode,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde_json::{Value, json};

use crate::{
    CoordinatorError,
    address::Address,
    http::{Answer, Http, Request},
};

/// A client of a cluster.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) http: Http,
    /// User and password.
    login: Option<(String, String)>,
    /// The token of the last login.
    token: Mutex<Option<HeaderValue>>,
}

/// A candidate's key, without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) key: String,
    pub(super) create_revision: u64,
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) value: Vec<u8>,
    pub(super) create_revision: u64,
}

/// A lease that was granted.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) id: i64,
    pub(super) seconds: u64,
}

impl Api {
    pub(super) fn new(address: &Address) -> Result<Self, CoordinatorError> {
        let password = || address.password.clone().unwrap_or_default();
        let login = address.user.clone().map(|user| (user, password()));
        Ok(Self { http: Http::of(address)?, login, token: Mutex::default() })
    }

    /// Grants a lease.
    pub(super) async fn grant(&self, seconds: u64, patience: Duration) -> Result<Granted, CoordinatorError> {
        let answer = self.call("lease/grant", &json!({ "TTL": seconds }), patience).await?;
        let (id, seconds) = (number(&answer, "ID"), number(&answer, "TTL"));
        let (Some(id), Some(seconds)) = (id, seconds) else { return Err(strange(&answer)) };
        Ok(Granted { id, seconds: u64::try_from(seconds).map_err(|_| strange(&answer))? })
    }

    /// Renews a lease.
    pub(super) async fn keep_alive(&self, lease: i64, patience: Duration) -> Result<(), CoordinatorError> {
        let answer = self.call("lease/keepalive", &json!({ "ID": lease }), patience).await?;
        // The answer is a stream of one. A TTL of 0 is left out.
        let result = &answer["result"];
        match number(result, "TTL") {
            Some(1..) => Ok(()),
            _ if result.is_object() => Err(CoordinatorError::Lost("the lease is over".to_owned())),
            _ => Err(strange(&answer)),
        }
    }

    /// Ends a lease, which deletes its key.
    pub(super) async fn revoke(&self, lease: i64, patience: Duration) -> Result<(), CoordinatorError> {
        match self.call("lease/revoke", &json!({ "ID": lease }), patience).await {
            Err(CoordinatorError::Lost(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Creates a key unless it exists, and returns its create revision.
    pub(super) async fn create(
        &self,
        key: &str,
        value: &str,
        lease: i64,
        patience: Duration,
    ) -> Result<u64, CoordinatorError> {
        let (key, value) = (encode(key), encode(value));
        let answer = self
            .call(
                "kv/txn",
                &json!({
                    "compare": [{ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": 0 }],
                    "success": [{ "request_put": { "key": key, "value": value, "lease": lease } }],
                    "failure": [{ "request_range": { "key": key } }],
                }),
                patience,
            )
            .await?;
        let revision = if answer["succeeded"] == json!(true) {
            revision(&answer)
        } else {
            // An earlier request arrived whose answer did not.
            let found = &answer["responses"][0]["response_range"]["kvs"][0];
            unsigned(found, "create_revision")
        };
        revision.ok_or_else(|| strange(&answer))
    }

    /// The key below this folder with the lowest create revision, and the revision of the answer. Keys of
    /// another name, whose folder is in this one, are left out.
    pub(super) async fn first(
        &self,
        folder: &str,
        patience: Duration,
    ) -> Result<(Option<Key>, u64), CoordinatorError> {
        let (mut keys, revision) = self.candidates(folder, u64::MAX, patience).await?;
        Ok((keys.drain(..).min_by_key(|key| key.create_revision), revision))
    }

    /// The last candidate that entered before this revision.
    pub(super) async fn before(
        &self,
        folder: &str,
        create_revision: u64,
        patience: Duration,
    ) -> Result<(Option<Key>, u64), CoordinatorError> {
        let (mut keys, revision) = self.candidates(folder, create_revision, patience).await?;
        Ok((keys.drain(..).max_by_key(|key| key.create_revision), revision))
    }

    async fn candidates(
        &self,
        folder: &str,
        before: u64,
        patience: Duration,
    ) -> Result<(Vec<Key>, u64), CoordinatorError> {
        let question = json!({
            "key": encode(folder),
            "range_end": encode_bytes(&end_of(folder)),
            "keys_only": true,
        });
        let answer = self.call("kv/range", &question, patience).await?;
        let mut keys = Vec::new();
        for found in answer["kvs"].as_array().into_iter().flatten() {
            let key = decode(found, "key").and_then(|key| String::from_utf8(key).ok());
            let (Some(key), Some(create_revision)) = (key, unsigned(found, "create_revision")) else {
                continue;
            };
            let is_candidate = !key[folder.len().min(key.len())..].contains('/');
            if is_candidate && create_revision < before {
                keys.push(Key { key, create_revision });
            }
        }
        Ok((keys, revision(&answer).ok_or_else(|| strange(&answer))?))
    }

    /// Reads a key.
    pub(super) async fn read(
        &self,
        key: &str,
        patience: Duration,
    ) -> Result<Option<Found>, CoordinatorError> {
        let answer = self.call("kv/range", &json!({ "key": encode(key) }), patience).await?;
        let found = &answer["kvs"][0];
        let value = decode(found, "value").unwrap_or_default();
        Ok(unsigned(found, "create_revision").map(|create_revision| Found { value, create_revision }))
    }

    async fn call(&self, path: &str, body: &Value, patience: Duration) -> Result<Value, CoordinatorError> {
        let mut request = self.request(path, body, patience).await?;
        let mut answer = self.http.call(&request).await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.login.is_some() {
            // The token is too old.
            *self.token() = None;
            request = self.request(path, body, patience).await?;
            answer = self.http.call(&request).await?;
        }
        understand(&answer)
    }

    /// A request with a token, where this has a user.
    pub(super) async fn request(
        &self,
        path: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<Request, CoordinatorError> {
        let mut headers = HeaderMap::new();
        if self.login.is_some() {
            let known = self.token().clone();
            let token = match known {
                Some(token) => token,
                None => self.log_in(patience).await?,
            };
            headers.insert(AUTHORIZATION, token);
        }
        let (path, body) = (format!("/v3/{path}"), body.to_string());
        Ok(Request { method: Method::POST, path, headers, body, patience })
    }

    async fn log_in(&self, patience: Duration) -> Result<HeaderValue, CoordinatorError> {
        let (user, password) = self.login.clone().unwrap_or_default();
        let request = Request {
            method: Method::POST,
            path: "/v3/auth/authenticate".to_owned(),
            headers: HeaderMap::new(),
            body: json!({ "name": user, "password": password }).to_string(),
            patience,
        };
        let answer = self.http.call(&request).await?;
        if answer.status.is_client_error() {
            return Err(CoordinatorError::Refused(format!("{}: {}", answer.status, answer.text())));
        }
        let answer = understand(&answer)?;
        let token = answer["token"].as_str().and_then(|token| HeaderValue::from_str(token).ok());
        let mut token = token.ok_or_else(|| strange(&answer))?;
        token.set_sensitive(true);
        *self.token() = Some(token.clone());
        Ok(token)
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<HeaderValue>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The JSON of an answer, or what is wrong.
fn understand(answer: &Answer) -> Result<Value, CoordinatorError> {
    let why = || format!("{}: {}", answer.status, answer.text());
    match answer.status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND if answer.text().contains("lease not found") => {
            return Err(CoordinatorError::Lost(why()));
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(CoordinatorError::Refused(why())),
        StatusCode::BAD_REQUEST if answer.text().contains("user name is empty") => {
            return Err(CoordinatorError::Refused(why()));
        }
        _ => return Err(CoordinatorError::Invalid(format!("etcd does not accept a request: {}", why()))),
    }
    serde_json::from_slice(&answer.body)
        .map_err(|error| CoordinatorError::Unavailable(format!("etcd's answer is not JSON: {error}")))
}

pub(super) fn strange(answer: &Value) -> CoordinatorError {
    let answer: String = answer.to_string().chars().take(300).collect();
    CoordinatorError::Unavailable(format!("etcd's answer lacks a field: {answer}"))
}

/// The revision of the store at an answer.
fn revision(answer: &Value) -> Option<u64> {
    unsigned(&answer["header"], "revision")
}

/// The gateway writes numbers as strings.
fn number(of: &Value, field: &str) -> Option<i64> {
    let field = &of[field];
    field.as_i64().or_else(|| field.as_str()?.parse().ok())
}

fn unsigned(of: &Value, field: &str) -> Option<u64> {
    u64::try_from(number(of, field)?).ok()
}

pub(super) fn encode(text: &str) -> String {
    encode_bytes(text.as_bytes())
}

pub(super) fn encode_bytes(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn decode(of: &Value, field: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(of[field].as_str()?).ok()
}

/// The end of the range of all keys that begin with `folder`, which ends in a slash.
pub(super) fn end_of(folder: &str) -> Vec<u8> {
    let mut end = folder.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_ends_before_the_character_behind_the_slash() {
        assert_eq!(end_of("a/"), b"a0");
    }

    #[test]
    fn numbers_are_strings_or_numbers() {
        let answer = json!({ "a": "7", "b": 8, "c": "-1" });
        assert_eq!((unsigned(&answer, "a"), unsigned(&answer, "b")), (Some(7), Some(8)));
        assert_eq!((unsigned(&answer, "c"), unsigned(&answer, "d")), (None, None));
    }
}
