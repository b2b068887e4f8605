//! The audit log: each change of an operator or an admin has an entry, and nothing else has one.

use axum::{
    body::Body,
    http::{Method, Request},
};
use serde_json::{Value, json};

use super::{super::server::json_request, Guarded, exchange, refused};

/// An entry: operation, actor, kind and name.
type Entry = [String; 4];

fn entry(operation: &str, by: &str, kind: &str, name: &str) -> Entry {
    [operation, by, kind, name].map(str::to_owned)
}

/// The entries that a query finds, the oldest first.
async fn entries(guarded: &Guarded, query: &str) -> Vec<Entry> {
    let page = guarded.get(&guarded.admin, &format!("/v1/audit{query}")).await;
    assert!(page.status.is_success(), "{page:?}");
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let fields = |entry: &Value| ["operation", "by", "kind", "name"].map(|key| text(entry, key));
    page.json()["items"].as_array().unwrap().iter().rev().map(fields).collect()
}

#[tokio::test]
async fn each_change_of_an_operator_has_an_entry_and_nothing_else_has_one() {
    let guarded = Guarded::start().await;
    let ops = guarded.token("ops", "operator", &[], &[]).await;
    guarded.apply("order", "mail").await;
    // The same flow again changes nothing.
    guarded.apply("order", "mail").await;
    let (one, other) = (guarded.submit("order").await, guarded.submit("order").await);
    let put = async |path: &str, body: &Value| {
        let answer = guarded.send(&ops, json_request(Method::PUT, path, &body.to_string())).await;
        assert!(answer.status.is_success(), "{answer:?}");
    };
    let post = async |path: &str, body: &Value| {
        let answer = guarded.post(&ops, path, body).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer.json()
    };
    let delete = async |token: &str, path: &str| {
        let answer = guarded.send(token, Request::delete(path).body(Body::empty()).unwrap()).await;
        assert!(answer.status.is_success(), "{answer:?}");
    };
    post("/v1/queues/mail/pause", &json!({})).await;
    put("/v1/limits/few", &json!({ "queue": "mail", "running": 3 })).await;
    put("/v1/triggers/nightly", &json!({ "http": { "unsigned": true }, "flows": [{ "flow": "order" }] }))
        .await;
    post("/v1/devices", &json!({ "devices": [{ "name": "pump" }, { "name": "valve" }] })).await;
    post(&format!("/v1/tasks/{one}/pause"), &json!({})).await;
    post(&format!("/v1/tasks/{one}/cancel"), &json!({})).await;
    post("/v1/tasks/bulk", &json!({ "action": "cancel", "filter": { "flow": "order" }, "expect": 1 })).await;
    let rerun = post(&format!("/v1/tasks/{other}/rerun"), &json!({})).await;
    let rerun = rerun["id"].as_str().unwrap().to_owned();
    post("/v1/queues/mail/resume", &json!({})).await;
    delete(&ops, "/v1/limits/few").await;
    delete(&guarded.admin, "/v1/tokens/ops").await;
    // What is refused, and what programs do all the time, has no entry.
    assert_eq!(guarded.post(&ops, "/v1/queues/mail/pause", &json!({})).await.status, 401);
    let unknown = "/v1/tasks/00000000-0000-0000-0000-000000000001/cancel";
    refused(&guarded.post(&guarded.admin, unknown, &json!({})).await, 404, "unknown-task", "");
    guarded.post(&guarded.admin, "/v1/worker/exchange", &exchange(1, 1, &["mail"], 1)).await;
    guarded.post(&guarded.admin, "/v1/triggers/nightly", &json!({})).await;

    let expected = [
        entry("create_token", "admin", "access token", "ops"),
        entry("apply_flow", "admin", "flow", "order"),
        entry("pause_queue", "ops", "queue", "mail"),
        entry("set_limit", "ops", "limit", "few"),
        entry("apply_trigger", "ops", "trigger", "nightly"),
        entry("apply_devices", "ops", "device", "pump"),
        entry("apply_devices", "ops", "device", "valve"),
        entry("pause_task", "ops", "task", &one),
        entry("cancel_task", "ops", "task", &one),
        entry("change_tasks", "ops", "task", &other),
        entry("rerun_task", "ops", "task", &rerun),
        entry("resume_queue", "ops", "queue", "mail"),
        entry("remove_limit", "ops", "limit", "few"),
        entry("revoke_token", "admin", "access token", "ops"),
    ];
    assert_eq!(entries(&guarded, "").await, expected);
    assert_eq!(entries(&guarded, &format!("?name={one}")).await, expected[7..9]);
    assert_eq!(entries(&guarded, "?by=admin&operation=revoke_token").await, expected[13..]);
    let misspelt = guarded.get(&guarded.admin, "/v1/audit?operation=cancel_tasks").await;
    refused(&misspelt, 400, "malformed", "cancel_tasks");
    assert_eq!(entries(&guarded, "?since=1h&limit=2").await, expected[12..]);
    let page = guarded.get(&guarded.admin, "/v1/audit?limit=2").await.json();
    let next = page["next"].as_str().unwrap();
    assert_eq!(entries(&guarded, &format!("?limit=2&cursor={next}")).await, expected[10..12]);
    assert!(!page.to_string().contains(&ops[20..]), "no secrets");
}

#[tokio::test]
async fn without_tokens_the_audit_log_has_the_name_that_the_client_gives() {
    let server = super::super::server::Server::start().await;
    server.apply("order", "steps: [{ name: one, run: mail.do }]").await;
    let mut request = json_request(Method::POST, "/v1/queues/mail/pause", "{}");
    request.headers_mut().insert("windlass-actor", "Zoë".parse().unwrap());
    assert!(server.send(request).await.status.is_success());
    let request = json_request(Method::POST, "/v1/queues/mail/resume", "{}");
    assert!(server.send(request).await.status.is_success());
    let page = server.send(Request::get("/v1/audit").body(Body::empty()).unwrap()).await.json();
    let by: Vec<&Value> = page["items"].as_array().unwrap().iter().map(|entry| &entry["by"]).collect();
    assert_eq!(by[..2], [&Value::Null, &json!("Zoë (claimed)")]);
}
