//! Limits over HTTP: set, changed and removed while attempts run, with who counts under them.

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use serde_json::{Value, json};

use super::server::{Answer, Server, Worker, json_request};

const FLOW: &str = "
steps:
  - { name: init, run: mysql.init, key: tenant }
";

async fn put(server: &Server, name: &str, rule: &Value) -> Answer {
    server.send(json_request(Method::PUT, &format!("/v1/limits/{name}"), &rule.to_string())).await
}

async fn set(server: &Server, name: &str, rule: Value) -> Value {
    let answer = put(server, name, &rule).await;
    assert_eq!(answer.status, StatusCode::OK, "{rule}: {answer:?}");
    answer.json()
}

async fn remove(server: &Server, name: &str) -> Answer {
    server.send(Request::delete(format!("/v1/limits/{name}")).body(Body::empty()).unwrap()).await
}

/// How many attempts a new worker is given that could do ten.
async fn taken(server: &Server, number: u8) -> usize {
    let modules = json!({ "modules": [{ "name": "mysql", "free": 10 }] });
    let answer = Worker::new(server, number, &[]).call(modules).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.json()["attempts"].as_array().unwrap().len()
}

/// A server with these tasks, one for each tenant named.
async fn start(tenants: &[&str]) -> (Server, Vec<String>) {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let mut ids = Vec::new();
    for tenant in tenants {
        ids.push(server.submit("f", json!({ "tenant": tenant })).await);
        // So that their order is that of their times.
        server.pass(1).await;
    }
    (server, ids)
}

#[tokio::test]
async fn a_limit_is_set_changed_and_removed_while_attempts_run() {
    let (server, ids) = start(&["a", "b", "c", "d"]).await;
    let limit = set(&server, "gentle", json!({ "queue": "mysql", "running": 1 })).await;
    assert_eq!(
        limit,
        json!({
            "name": "gentle", "queue": "mysql", "per_key": false, "running": 1,
            "usage": { "running": 0, "started": 0 }, "holders": [],
        })
    );
    let mut worker = Worker::new(&server, 1, &["mysql"]);
    let attempt = worker.take().await;
    assert_eq!(taken(&server, 2).await, 0, "one is in flight");

    let limit = server.get("/v1/limits/gentle").await.json();
    assert_eq!(limit["usage"]["running"], json!(1), "{limit}");
    let holder = &limit["holders"][0];
    assert_eq!(
        (&holder["task"], &holder["step"], &holder["attempt"], &holder["worker"], &holder["direction"]),
        (&json!(ids[0]), &json!("init"), &json!(1), &json!("worker-1"), &json!("forward")),
        "{limit}"
    );
    let why = server.get(&format!("/v1/tasks/{}/why", ids[1])).await.json();
    assert!(why["sentence"].as_str().unwrap().contains("gentle"), "{why}");

    // A higher one lets more go at once, a lower one takes nothing away and lets none go.
    set(&server, "gentle", json!({ "queue": "mysql", "running": 3 })).await;
    assert_eq!(taken(&server, 3).await, 2);
    let lower = set(&server, "gentle", json!({ "queue": "mysql", "running": 1 })).await;
    assert_eq!((&lower["running"], &lower["usage"]["running"]), (&json!(1), &json!(3)), "{lower}");
    assert_eq!(lower["holders"].as_array().unwrap().len(), 3, "{lower}");
    assert_eq!(worker.report(&attempt, "succeeded", json!({})).await, "accepted");
    assert_eq!(taken(&server, 4).await, 0, "two are in flight still");

    let removed = remove(&server, "gentle").await;
    assert_eq!((removed.status, &removed.json()["running"]), (StatusCode::OK, &json!(1)), "{removed:?}");
    assert_eq!(server.get("/v1/limits").await.json(), json!({ "items": [], "next": null }));
    assert_eq!(taken(&server, 5).await, 1);
}

#[tokio::test]
async fn a_limit_by_key_and_by_starts_tells_what_counts() {
    let (server, _) = start(&["a", "a", "b"]).await;
    let rule = json!({ "queue": "mysql", "command": "init", "per_key": true, "starts": { "count": 1, "per": "1m" } });
    set(&server, "slow", rule).await;
    assert_eq!(taken(&server, 1).await, 2, "one of each tenant");
    let limit = server.get("/v1/limits/slow").await.json();
    assert_eq!(limit["starts"], json!({ "count": 1, "per": "1m" }), "{limit}");
    assert_eq!(limit["usage"]["started"], json!(2), "{limit}");
    let keys: Vec<&str> =
        limit["holders"].as_array().unwrap().iter().map(|holder| holder["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a", "b"], "{limit}");
    server.pass(59_000).await;
    assert_eq!(taken(&server, 2).await, 0);
    server.pass(1_000).await;
    // Those of the first worker are lost by now, and were tried again under the same limit.
    assert_eq!(taken(&server, 3).await, 2);
}

#[tokio::test]
async fn limits_that_cannot_be_are_refused_and_change_nothing() {
    let server = Server::start().await;
    let good = set(&server, "gentle", json!({ "queue": "mysql", "running": 2 })).await;
    for (rule, status, detail) in [
        (json!({ "queue": "mysql" }), 422, "it limits nothing"),
        (json!({ "queue": "mysql", "running": 0 }), 422, "pause the queue mysql"),
        (json!({ "queue": "mysql", "starts": { "count": 0, "per": "1m" } }), 422, "pause the queue mysql"),
        (json!({ "queue": "mysql", "starts": { "count": 100_001, "per": "1m" } }), 422, "may be 100000"),
        (json!({ "queue": "mysql", "starts": { "count": 1, "per": "0s" } }), 422, "longer than 0"),
        (json!({ "queue": "mysql", "starts": { "count": 1, "per": "367d" } }), 422, "at most 366 days"),
        (json!({ "queue": "mysql", "running": -1 }), 400, "running"),
        (json!({ "queue": "mysql", "starts": { "count": 1, "per": "soon" } }), 400, "starts.per"),
        (json!({ "queue": "my/sql", "running": 1 }), 400, "`queue`"),
        (json!({ "queue": "mysql", "command": "", "running": 1 }), 400, "`command`"),
        (json!({ "running": 1 }), 400, "queue"),
        (json!({ "queue": "mysql", "runing": 1 }), 400, "runing"),
    ] {
        let answer = put(&server, "gentle", &rule).await;
        assert_eq!(answer.status.as_u16(), status, "{rule}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{rule}: {answer:?}");
    }
    let named = put(&server, "no%2Fname", &json!({ "queue": "mysql", "running": 1 })).await;
    assert_eq!(named.status, StatusCode::BAD_REQUEST, "{named:?}");
    assert!(named.json()["detail"].as_str().unwrap().contains("the limit"), "{named:?}");
    assert_eq!(server.get("/v1/limits").await.json()["items"][0]["running"], good["running"]);

    for unknown in [server.get("/v1/limits/other").await, remove(&server, "other").await] {
        assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{unknown:?}");
        assert!(unknown.text.contains("unknown-limit") && unknown.text.contains("other"), "{unknown:?}");
    }
}

#[tokio::test]
async fn a_limit_on_nothing_says_so() {
    let (server, _) = start(&[]).await;
    for (rule, warning) in [
        (json!({ "queue": "other", "running": 1 }), "no step of any flow runs other"),
        (json!({ "queue": "mysql", "command": "drop", "running": 1 }), "no step of any flow runs mysql.drop"),
        (json!({ "queue": "plain", "per_key": true, "running": 1 }), "no step of any flow runs plain"),
    ] {
        let limit = set(&server, "odd", rule).await;
        assert!(limit["warnings"][0].as_str().unwrap().contains(warning), "{limit}");
    }
    server.apply("g", "steps: [{ name: only, run: plain.run }]").await;
    let limit = set(&server, "odd", json!({ "queue": "plain", "per_key": true, "running": 1 })).await;
    assert!(limit["warnings"][0].as_str().unwrap().contains("has a `key`"), "{limit}");
}
