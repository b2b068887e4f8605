//! A task that has ended is run again, with what it has done.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::server::{Answer, Server, Worker, json_request};

const DIAMOND: &str = "
steps:
  - { name: fetch, run: m.fetch }
  - { name: left, run: m.left, after: [fetch] }
  - { name: right, run: m.right, after: [fetch] }
  - { name: join, run: m.join, after: [left, right] }
";

const SAGA: &str = "
steps:
  - { name: make, run: m.make, rollback: m.remove }
  - { name: use, run: m.use }
";

async fn rerun(server: &Server, id: &str, body: Value) -> Answer {
    server.post(&format!("/v1/tasks/{id}/rerun"), &body).await
}

/// A diamond whose join failed.
async fn failed(server: &Server) -> String {
    server.apply("f", DIAMOND).await;
    let body = json!({ "flow": "f", "params": { "size": 1 }, "labels": { "team": "a" }, "deadline": "1h" });
    let id = server.post("/v1/tasks", &body).await.json()["id"].as_str().unwrap().to_owned();
    let mut worker = Worker::new(server, 1, &["m"]);
    for step in ["fetch", "left", "right"] {
        let attempt = worker.run("succeeded", json!({ "result": { step: 1 } })).await;
        assert_eq!(attempt["step"], step);
    }
    worker.run("failed", json!({ "error": { "message": "no", "retryable": false } })).await;
    assert_eq!(server.task(&id).await["status"], "failed");
    id
}

#[tokio::test]
async fn it_begins_at_the_step_that_failed_with_the_results_of_those_before() {
    let server = Server::start().await;
    let old = failed(&server).await;
    let answer = rerun(&server, &old, json!({ "params": { "size": 2 } })).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    let task = answer.json();
    let id = task["id"].as_str().unwrap();
    assert_eq!(answer.header("location"), Some(&*format!("/v1/tasks/{id}")));
    assert_eq!((&task["rerun_of"], &task["labels"]), (&json!(old), &json!({ "team": "a" })));
    assert_eq!(task["deadline_at"], "2030-03-17T18:46:41Z");
    let statuses: Vec<&str> =
        task["steps"].as_array().unwrap().iter().map(|step| step["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["succeeded", "succeeded", "succeeded", "ready"]);
    let mut worker = Worker::new(&server, 2, &["m"]);
    let attempt = worker.run("succeeded", json!({})).await;
    assert_eq!(attempt["params"], json!({ "size": 2, "fetch": 1, "left": 1, "right": 1 }));
    assert_eq!(server.task(id).await["status"], "succeeded");
    assert_eq!(server.task(&old).await["status"], "failed", "the old task is as it was");
}

#[tokio::test]
async fn from_a_step_on_only_those_after_it_are_done_again() {
    let server = Server::start().await;
    let old = failed(&server).await;
    let answer = rerun(&server, &old, json!({ "from": "left" })).await.json();
    let steps: Vec<(&str, &str)> = answer["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (step["name"].as_str().unwrap(), step["status"].as_str().unwrap()))
        .collect();
    assert_eq!(
        steps,
        [("fetch", "succeeded"), ("left", "ready"), ("right", "succeeded"), ("join", "pending")]
    );
}

#[tokio::test]
async fn two_reruns_of_a_unique_task_are_one_unless_somebody_overrides_it() {
    let server = Server::start().await;
    server.apply("pay", "unique: order\nsteps: [{ name: charge, run: m.charge }]\n").await;
    let start = json!({ "flow": "pay", "params": { "order": "o-1" } });
    let started = server.post("/v1/tasks", &start).await;
    assert_eq!((started.status, started.header("windlass-existing")), (StatusCode::ACCEPTED, None));
    let old = started.json()["id"].as_str().unwrap().to_owned();
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("failed", json!({ "error": { "message": "no", "retryable": false } })).await;
    let first = rerun(&server, &old, json!({})).await;
    assert_eq!(first.status, StatusCode::ACCEPTED, "{first:?}");
    let again = rerun(&server, &old, json!({})).await;
    assert_eq!((again.status, again.header("windlass-existing")), (StatusCode::OK, Some("unique")));
    assert_eq!((&again.json()["id"], &again.json()["existing"]), (&first.json()["id"], &json!("unique")));
    let batch = server.post("/v1/tasks/batch", &json!({ "tasks": [start] })).await.json();
    let expected = json!({ "status": 200, "id": first.json()["id"], "existing": "unique" });
    assert_eq!(batch["results"][0], expected);
    let path = format!("/v1/tasks/{old}/rerun");
    let mut request = json_request(Method::POST, &path, r#"{"override_unique":true}"#);
    request.headers_mut().insert("windlass-actor", "ann".parse().unwrap());
    let second = server.send(request).await;
    assert_eq!(second.status, StatusCode::ACCEPTED, "{second:?}");
    let events = server.get(&format!("/v1/tasks/{}/events", second.json()["id"].as_str().unwrap())).await;
    let kinds: Vec<(Value, Value)> = events.json()["items"].as_array().unwrap()[..2]
        .iter()
        .map(|event| (event["kind"].clone(), event["actor"].clone()))
        .collect();
    assert_eq!(kinds[1], (json!("task.unique_overridden"), json!("ann (claimed)")), "{kinds:?}");
}

#[tokio::test]
async fn the_same_key_runs_it_again_once() {
    let server = Server::start().await;
    let old = failed(&server).await;
    let id = async |body: Value| rerun(&server, &old, body).await.json()["id"].clone();
    let first = id(json!({ "key": "k" })).await;
    assert_eq!(id(json!({ "key": "k" })).await, first);
    assert_ne!(id(json!({ "key": "other" })).await, first);
    let other = rerun(&server, &old, json!({ "key": "k", "from": "left" })).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "{other:?}");
}

#[tokio::test]
async fn what_was_undone_is_not_taken_over() {
    let server = Server::start().await;
    server.apply("f", SAGA).await;
    let id = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("succeeded", json!({})).await;
    let early = rerun(&server, &id, json!({})).await;
    assert_eq!(early.status, StatusCode::CONFLICT);
    assert!(early.json()["detail"].as_str().unwrap().contains("has not ended"), "{early:?}");
    worker.run("failed", json!({ "error": { "message": "no", "retryable": false } })).await;
    worker.run("succeeded", json!({})).await;
    assert_eq!(server.task(&id).await["status"], "rolled_back");
    let refused = rerun(&server, &id, json!({ "from": "use" })).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.json()["detail"].as_str().unwrap().contains("\"make\" was rolled back"), "{refused:?}");
    let again = rerun(&server, &id, json!({})).await;
    assert_eq!(again.status, StatusCode::ACCEPTED, "{again:?}");
    assert_eq!(worker.run("succeeded", json!({})).await["step"], "make");
}

#[tokio::test]
async fn runs_that_make_no_sense_are_refused() {
    let server = Server::start().await;
    let old = failed(&server).await;
    for (body, status, detail) in [
        (json!({ "from": "middle" }), 404, "it has fetch, left, right, join"),
        (json!({ "from": 1 }), 400, "from"),
        (json!({ "params": [] }), 400, "`params`: it is an array"),
        (json!({ "step": "left" }), 400, "step"),
        (json!({ "key": "" }), 400, "empty"),
    ] {
        let answer = rerun(&server, &old, body.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{body}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{body}: {answer:?}");
    }
    let id = server.verb(&format!("/v1/tasks/{old}/rerun")).await.json()["id"].as_str().unwrap().to_owned();
    Worker::new(&server, 2, &["m"]).run("succeeded", json!({})).await;
    let done = rerun(&server, &id, json!({})).await;
    assert_eq!(done.status, StatusCode::CONFLICT, "{done:?}");
    assert!(done.json()["detail"].as_str().unwrap().contains("every step"), "{done:?}");
}
