//! Who may do what: every operation, with every role, in scope and out of it. And what the refusals say.

mod audit;
mod matrix;
mod operations;

use std::time::{Duration, Instant};

use axum::{
    body::Body,
    http::{Method, Request, StatusCode, header},
};
use serde_json::{Value, json};
use windlass_core::Name;
use windlass_engine::{ACCESS_RANDOM_BYTES, AccessRole, AccessSecret, AccessToken};

use super::server::{Answer, Server, json_request};

/// A server that asks for tokens, and one of an admin.
pub(super) struct Guarded {
    pub(super) server: Server,
    pub(super) admin: String,
}

impl Guarded {
    pub(super) async fn start() -> Self {
        let server = Server::with_tokens().await;
        let (secret, now) = (AccessSecret::new(&[0x61; ACCESS_RANDOM_BYTES]), server.now());
        let token = AccessToken::new(Name::new("admin").unwrap(), &secret, AccessRole::Admin, now.wall);
        server.app.engine.create_access_token(token, now).await.unwrap();
        Self { server, admin: secret.text().to_owned() }
    }

    /// A new token.
    pub(super) async fn token(&self, name: &str, role: &str, queues: &[&str], flows: &[&str]) -> String {
        let body = json!({ "name": name, "role": role, "queues": queues, "flows": flows });
        let answer = self.post(&self.admin, "/v1/tokens", &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.json()["secret"].as_str().unwrap().to_owned()
    }

    pub(super) async fn send(&self, token: &str, mut request: Request<Body>) -> Answer {
        if !token.is_empty() {
            request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        self.server.send(request).await
    }

    pub(super) async fn get(&self, token: &str, path: &str) -> Answer {
        self.send(token, Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(super) async fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(token, json_request(Method::POST, path, &body.to_string())).await
    }

    /// Applies a flow of one step on a queue.
    pub(super) async fn apply(&self, flow: &str, queue: &str) {
        let body = json!({ "steps": [{ "name": "one", "run": format!("{queue}.do") }] });
        let request = json_request(Method::PUT, &format!("/v1/flows/{flow}"), &body.to_string());
        let answer = self.send(&self.admin, request).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }

    /// Starts a task; gives its id.
    pub(super) async fn submit(&self, flow: &str) -> String {
        let answer = self.post(&self.admin, "/v1/tasks", &json!({ "flow": flow })).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}

/// An exchange of a worker of these queues.
pub(super) fn exchange(session: u8, seq: u64, queues: &[&str], free: u32) -> Value {
    let modules: Vec<Value> = queues.iter().map(|queue| json!({ "name": queue, "free": free })).collect();
    let session = format!("00000000-0000-4000-8000-0000000000{session:02x}");
    json!({ "protocol": 1, "session": session, "seq": seq, "worker": { "name": "w" }, "modules": modules, "holding": [] })
}

#[track_caller]
fn refused(answer: &Answer, status: u16, problem: &str, detail: &str) {
    let document = answer.json();
    assert_eq!(answer.status.as_u16(), status, "{answer:?}");
    assert!(document["type"].as_str().unwrap().ends_with(problem), "{answer:?}");
    assert!(document["detail"].as_str().unwrap().contains(detail), "{detail:?} is not in {answer:?}");
}

#[tokio::test]
async fn a_request_without_a_valid_token_is_told_what_is_missing() {
    let guarded = Guarded::start().await;
    let none = guarded.get("", "/v1/tasks").await;
    refused(&none, 401, "unauthorized", "Authorization: Bearer TOKEN");
    assert_eq!(none.header("www-authenticate"), Some("Bearer realm=\"windlass\""));
    let malformed = guarded.get("secret", "/v1/tasks").await;
    refused(&malformed, 401, "unauthorized", "wl_ID_SECRET");
    assert_eq!(
        malformed.header("www-authenticate"),
        Some("Bearer realm=\"windlass\", error=\"invalid_token\"")
    );
    let unknown = guarded.admin.replace("wl_6", "wl_7");
    refused(&guarded.get(&unknown, "/v1/tasks").await, 401, "unauthorized", "never was one of this server");
    // The id is right, and one character of the secret is not.
    let mut wrong = guarded.admin.clone();
    wrong.replace_range(wrong.len() - 1.., if wrong.ends_with('0') { "1" } else { "0" });
    refused(&guarded.get(&wrong, "/v1/tasks").await, 401, "unauthorized", "never was one of this server");
    assert_eq!(guarded.get(&guarded.admin, "/v1/tasks").await.status, StatusCode::OK);
    // Unauthenticated callers do not learn what is not there.
    refused(&guarded.get("", "/v1/nothing").await, 401, "unauthorized", "");
    refused(&guarded.get(&guarded.admin, "/v1/nothing").await, 404, "not-found", "");
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(guarded.get("", open).await.status, StatusCode::OK, "{open}");
    }
}

#[tokio::test]
async fn after_many_refused_tokens_a_client_waits_and_valid_tokens_are_accepted() {
    let guarded = Guarded::start().await;
    for _ in 0..20 {
        assert_eq!(guarded.get("guess", "/v1/tasks").await.status, StatusCode::UNAUTHORIZED);
    }
    let answer = guarded.get("guess", "/v1/tasks").await;
    let seconds: u32 = answer.header("retry-after").unwrap().parse().unwrap();
    refused(&answer, 429, "too-many-failures", &format!("or wait {seconds} s"));
    assert!((50..=60).contains(&seconds), "{seconds}");
    assert_eq!(guarded.get(&guarded.admin, "/v1/tasks").await.status, StatusCode::OK);
    assert_eq!(guarded.get("", "/v1/tasks").await.status, StatusCode::UNAUTHORIZED, "it tried nothing");
}

#[tokio::test]
async fn a_token_is_created_used_and_revoked() {
    let guarded = Guarded::start().await;
    let admin = &guarded.admin;
    let body = json!({ "name": "ci", "role": "operator", "flows": ["f"], "expires_in": "1m" });
    let created = guarded.post(admin, "/v1/tokens", &body).await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    let secret = created.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(created.json()["token"]["created_by"], "admin");
    refused(&guarded.post(admin, "/v1/tokens", &body).await, 409, "conflict", "revoke that one first");
    let listed = guarded.get(admin, "/v1/tokens").await;
    assert!(listed.text.contains("\"ci\"") && !listed.text.contains(&secret[20..]), "{listed:?}");
    assert_eq!(guarded.get(&secret, "/v1/tasks?flow=f").await.status, StatusCode::OK);
    // When it was last used is stored later.
    let now = guarded.server.now().wall;
    let id = AccessSecret::id_in(&secret).unwrap();
    guarded.server.app.engine.note_access_use(&Name::new("ci").unwrap(), id, now).await.unwrap();
    let listed = guarded.get(admin, "/v1/tokens").await.json();
    assert!(listed["items"][1]["last_used_at"].is_string(), "{listed}");
    // It expires.
    guarded.server.pass(60_000).await;
    refused(&guarded.get(&secret, "/v1/tasks?flow=f").await, 401, "unauthorized", "\"ci\" has expired");
    let body = json!({ "name": "two", "role": "viewer" });
    let secret = guarded.post(admin, "/v1/tokens", &body).await.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(guarded.get(&secret, "/v1/tasks").await.status, StatusCode::OK);
    let revoke = || Request::delete("/v1/tokens/two").body(Body::empty()).unwrap();
    assert_eq!(guarded.send(admin, revoke()).await.status, StatusCode::OK);
    refused(&guarded.get(&secret, "/v1/tasks").await, 401, "unauthorized", "revoked");
    refused(&guarded.send(admin, revoke()).await, 404, "unknown-token", "GET /v1/tokens");
}

#[tokio::test]
async fn a_token_that_cannot_work_is_not_created() {
    let guarded = Guarded::start().await;
    for (body, status, detail) in [
        (json!({ "name": "a", "role": "admin", "flows": ["f"] }), 422, "admin cannot be limited"),
        (json!({ "name": "a", "role": "worker", "flows": ["f"] }), 422, "limit it to queues"),
        (json!({ "name": "a", "role": "viewer", "expires_in": "0s" }), 422, "expire at once"),
        (json!({ "name": "a", "role": "viewer", "expires_in": "4000d" }), 422, "ten years"),
        (json!({ "name": "a b", "role": "viewer" }), 400, "`name`"),
        (json!({ "name": "a", "role": "viewer", "queues": [""] }), 400, "`queues`"),
        (json!({ "name": "a", "role": "root" }), 400, "root"),
        (json!({ "name": "a", "role": "viewer", "flow": "f" }), 400, "flow"),
    ] {
        refused(&guarded.post(&guarded.admin, "/v1/tokens", &body).await, status, "", detail);
    }
    let listed = guarded.get(&guarded.admin, "/v1/tokens").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_history_shows_the_name_of_the_token_and_not_what_the_client_says() {
    let guarded = Guarded::start().await;
    guarded.apply("f", "q").await;
    let id = guarded.submit("f").await;
    let operator = guarded.token("operator", "operator", &[], &[]).await;
    let cancel = Request::post(format!("/v1/tasks/{id}/cancel")).header("windlass-actor", "mallory");
    let answer = guarded.send(&operator, cancel.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let events = guarded.get(&guarded.admin, &format!("/v1/tasks/{id}/events")).await.text;
    assert!(events.contains("\"operator\"") && events.contains("\"admin\""), "{events}");
    assert!(!events.contains("mallory") && !events.contains("claimed"), "{events}");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked() {
    let guarded = Guarded::start().await;
    guarded.apply("f", "q").await;
    let id = guarded.submit("f").await;
    let watcher = guarded.token("watcher", "viewer", &[], &[]).await;
    assert_eq!(guarded.get(&watcher, "/v1/tasks").await.status, StatusCode::OK);
    let request = Request::get(format!("/v1/tasks/{id}/events")).header("accept", "text/event-stream");
    let stream = guarded.send(&watcher, request.body(Body::empty()).unwrap());
    let revoke = async {
        let revoke = Request::delete("/v1/tokens/watcher").body(Body::empty()).unwrap();
        assert_eq!(guarded.send(&guarded.admin, revoke).await.status, StatusCode::OK);
    };
    // The task does not end, so neither would the stream; `send` reads it to its end.
    let (answer, ()) = tokio::join!(stream, revoke);
    assert!(answer.text.contains("task.accepted"), "{answer:?}");
}

#[tokio::test]
async fn a_poll_ends_when_its_token_is_revoked() {
    let guarded = Guarded::start().await;
    let worker = guarded.token("worker", "worker", &[], &[]).await;
    let first = guarded.post(&worker, "/v1/worker/exchange", &exchange(1, 1, &["q"], 0)).await;
    assert_eq!(first.status, StatusCode::OK, "{first:?}");
    let mut call = exchange(1, 2, &["q"], 1);
    call["wait_ms"] = json!(15_000);
    let poll = guarded.post(&worker, "/v1/worker/exchange", &call);
    let revoke = async {
        let revoke = Request::delete("/v1/tokens/worker").body(Body::empty()).unwrap();
        assert_eq!(guarded.send(&guarded.admin, revoke).await.status, StatusCode::OK);
    };
    let began = Instant::now();
    let (answer, ()) = tokio::join!(poll, revoke);
    refused(&answer, 401, "unauthorized", "");
    assert!(began.elapsed() < Duration::from_secs(10), "long before the poll would have ended");
}
