//! Steering all tasks that meet a filter.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::server::{Answer, Server, Worker};

const FLOW: &str = "steps: [{ name: only, run: m.c }]";

async fn bulk(server: &Server, body: Value) -> Answer {
    server.post("/v1/tasks/bulk", &body).await
}

fn counts(answer: &Answer) -> [u64; 4] {
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let document = answer.json();
    ["matched", "done", "refused", "left"].map(|name| document[name].as_u64().unwrap())
}

async fn statuses(server: &Server) -> Vec<String> {
    let list = server.get("/v1/tasks?limit=1000").await.json();
    let items = list["items"].as_array().unwrap().iter();
    items.rev().map(|task| task["status"].as_str().unwrap().to_owned()).collect()
}

/// Three tasks of `f`, the first of which has ended, and one of `g`.
async fn start() -> Server {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    server.apply("g", FLOW).await;
    for flow in ["f", "f", "f", "g"] {
        server.submit(flow, json!({})).await;
    }
    Worker::new(&server, 1, &["m"]).run("succeeded", json!({})).await;
    server
}

#[tokio::test]
async fn tasks_are_counted_first_and_then_told() {
    let server = start().await;
    let of_f = |action: &str| json!({ "action": action, "filter": { "flow": "f" } });
    let expecting =
        |action: &str, expect: u64| json!({ "action": action, "filter": { "flow": "f" }, "expect": expect });
    assert_eq!(counts(&bulk(&server, of_f("pause")).await), [2, 0, 0, 2], "the ended one does not count");
    assert_eq!(statuses(&server).await, ["succeeded", "pending", "pending", "pending"], "nothing was done");

    assert_eq!(counts(&bulk(&server, expecting("pause", 2)).await), [2, 2, 0, 0]);
    assert_eq!(statuses(&server).await, ["succeeded", "paused", "paused", "pending"]);
    assert_eq!(counts(&bulk(&server, of_f("pause")).await), [0, 0, 0, 0], "they are paused already");

    assert_eq!(counts(&bulk(&server, expecting("resume", 2)).await), [2, 2, 0, 0]);
    assert_eq!(counts(&bulk(&server, expecting("cancel", 2)).await), [2, 2, 0, 0]);
    assert_eq!(statuses(&server).await, ["succeeded", "cancelled", "cancelled", "pending"]);
}

#[tokio::test]
async fn who_did_it_is_in_the_history_of_each() {
    let server = start().await;
    let body = json!({ "action": "pause", "filter": { "flow": "g" }, "expect": 1 }).to_string();
    let mut request = super::server::json_request(axum::http::Method::POST, "/v1/tasks/bulk", &body);
    request.headers_mut().insert("windlass-actor", "kim".parse().unwrap());
    assert_eq!(counts(&server.send(request).await), [1, 1, 0, 0]);
    let id = server.get("/v1/tasks?flow=g").await.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let why = server.get(&format!("/v1/tasks/{id}/why")).await.json();
    assert!(why["sentence"].as_str().unwrap().starts_with("The task was paused by kim (claimed)"), "{why}");
}

#[tokio::test]
async fn a_count_that_is_far_off_does_nothing() {
    let server = start().await;
    for expect in [0, 1, 3, 20] {
        let answer =
            bulk(&server, json!({ "action": "cancel", "filter": { "flow": "f" }, "expect": expect })).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{expect}");
        assert!(answer.json()["detail"].as_str().unwrap().starts_with("2 tasks meet the filter now"));
    }
    for _ in 0..18 {
        server.submit("f", json!({})).await;
    }
    let within = json!({ "action": "pause", "filter": { "flow": "f" }, "expect": 22 });
    assert_eq!(counts(&bulk(&server, within).await), [20, 20, 0, 0], "a tenth off is near enough");
}

#[tokio::test]
async fn a_filter_that_says_nothing_or_nonsense_is_refused() {
    let server = start().await;
    for (body, detail) in [
        (json!({ "action": "cancel", "filter": {} }), "would be all tasks"),
        (json!({ "action": "cancel", "filter": { "labels": {} } }), "would be all tasks"),
        (json!({ "action": "cancel", "filter": { "status": ["succeeded"] } }), "no command can cancel"),
        (json!({ "action": "cancel", "filter": { "since": "yesterday" } }), "15m"),
        (json!({ "action": "cancel", "filter": { "flow": "no such/name" } }), "filter.flow"),
        (json!({ "action": "delete", "filter": { "flow": "f" } }), "cancel"),
        (json!({ "action": "cancel", "filter": { "flows": "f" } }), "flows"),
        (json!({ "action": "cancel" }), "filter"),
    ] {
        let answer = bulk(&server, body.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{body}: {answer:?}");
    }
    assert_eq!(statuses(&server).await, ["succeeded", "pending", "pending", "pending"]);
    let nothing = json!({ "action": "cancel", "filter": { "flow": "unknown" }, "expect": 0 });
    assert_eq!(counts(&bulk(&server, nothing).await), [0, 0, 0, 0]);
}
