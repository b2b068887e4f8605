//! Lists of tasks and their counts: filters by keys and parameters, and what a line shows of a task.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::server::{Server, Worker};

const FLOW: &str = "steps: [{ name: one, run: m.c }, { name: two, run: m.d }]";

async fn list(server: &Server, query: &str) -> Value {
    let answer = server.get(&format!("/v1/tasks{query}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.json()
}

fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect()
}

async fn submit(server: &Server, body: Value) -> String {
    let answer = server.post("/v1/tasks", &body).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tasks_are_found_by_their_idempotency_key() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    server.apply("g", FLOW).await;
    let of_f = submit(&server, json!({ "flow": "f", "key": "order-1" })).await;
    let of_g = submit(&server, json!({ "flow": "g", "key": "order-1" })).await;
    let steps = json!([{ "name": "only", "run": "m.c" }]);
    let own = submit(&server, json!({ "steps": steps, "key": "order-1" })).await;
    submit(&server, json!({ "flow": "f", "key": "order-2" })).await;
    assert_eq!(ids(&list(&server, "?idempotency_key=order-1").await), [&own, &of_g, &of_f]);
    assert_eq!(ids(&list(&server, "?idempotency_key=order-1&flow=f").await), [&of_f]);
    assert_eq!(ids(&list(&server, "?idempotency_key=order-1&status=succeeded").await), [""; 0]);
    assert_eq!(ids(&list(&server, "?idempotency_key=order-9").await), [""; 0]);
}

#[tokio::test]
async fn tasks_are_found_by_their_unique_key_and_parameters() {
    let server = Server::start().await;
    let unique = format!("unique: {{ key: \"'db-' + params.name\" }}\n{FLOW}");
    server.apply("f", &unique).await;
    let one = server.submit("f", json!({ "name": "a", "disk": { "gb": 10 } })).await;
    let other = server.submit("f", json!({ "name": "b", "disk": { "gb": 20 } })).await;
    assert_eq!(ids(&list(&server, "?unique_key=db-a").await), [&one]);
    assert_eq!(ids(&list(&server, "?param=disk.gb:20").await), [&other]);
    assert_eq!(ids(&list(&server, "?param=/disk/gb:10.0&param=name:a").await), [&one]);
    assert_eq!(ids(&list(&server, "?param=/disk/gb:10&param=name:b").await), [""; 0]);
    for bad in ["param=size", "param=:1", "param=a..b:1", "brief=1"] {
        assert_eq!(server.get(&format!("/v1/tasks?{bad}")).await.status, StatusCode::BAD_REQUEST, "{bad}");
    }
    let many = ["param=a:1"; 17].join("&");
    assert_eq!(server.get(&format!("/v1/tasks?{many}")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_line_has_the_step_and_why_it_failed_and_a_brief_one_no_parameters() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    server.submit("f", json!({ "size": 3 })).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("succeeded", json!({})).await;
    worker.run("failed", json!({ "error": { "message": "disk busy", "code": 3 } })).await;
    let task = list(&server, "").await["items"][0].clone();
    assert_eq!(task["params"], json!({ "size": 3 }));
    let current = &task["current"];
    assert_eq!(current.as_array().unwrap().len(), 1, "{current}");
    assert_eq!((&current[0]["name"], &current[0]["message"]), (&json!("two"), &json!("disk busy")));
    let brief = list(&server, "?brief=true").await["items"][0].clone();
    assert_eq!((&brief["params"], &brief["current"]), (&json!({}), current));
}

#[tokio::test]
async fn tasks_are_counted_by_status() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    server.apply("g", FLOW).await;
    for number in 0..250 {
        server.submit(if number == 0 { "g" } else { "f" }, json!({ "odd": number % 2 == 1 })).await;
    }
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.take().await;
    let counts = server.get("/v1/tasks/counts").await.json();
    assert_eq!(counts, json!({ "total": 250, "by_status": { "pending": 249, "running": 1 }, "next": null }));
    let counts = server.get("/v1/tasks/counts?flow=f&param=odd:true&status=pending").await.json();
    assert_eq!(counts, json!({ "total": 125, "by_status": { "pending": 125 }, "next": null }));
    assert_eq!(server.get("/v1/tasks/counts?limit=3").await.status, StatusCode::BAD_REQUEST);
}
