//! An operator resolves a step that failed, with other parameters where those were at fault.

use axum::http::StatusCode;
use serde_json::json;

use super::server::{Server, Worker};

const FLOW: &str = "
on_failure: hold
steps:
  - { name: one, run: m.one }
  - { name: two, run: m.two }
";

#[tokio::test]
async fn a_step_is_tried_again_with_other_parameters_and_the_history_has_both() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({ "size": 900, "name": "db1" })).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("succeeded", json!({ "result": { "port": 1 } })).await;
    worker.run("failed", json!({ "error": { "message": "too large", "code": 3 } })).await;
    assert_eq!(server.task(&id).await["status"], "stuck");
    let fix = json!({ "action": "retry", "params": { "size": 3, "zone": "b" } });
    let answer = server.post(&format!("/v1/tasks/{id}/steps/two/resolve"), &fix).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let again = worker.run("succeeded", json!({})).await;
    assert_eq!(again["params"], json!({ "size": 3, "name": "db1", "port": 1, "zone": "b" }));
    let task = server.task(&id).await;
    assert_eq!((&task["status"], &task["params"]["size"]), (&json!("succeeded"), &json!(900)));
    let events = server.get(&format!("/v1/tasks/{id}/events")).await.json();
    let amended = events["items"].as_array().unwrap().iter().find(|event| event["kind"] == "step.amended");
    assert_eq!(
        amended.unwrap()["data"],
        json!({ "before": { "size": 900 }, "after": { "size": 3, "zone": "b" } })
    );
}

#[tokio::test]
async fn parameters_of_a_retry_are_an_object_and_go_with_no_other_action() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("failed", json!({ "error": { "message": "no" } })).await;
    for (body, detail) in [
        (json!({ "action": "retry", "params": [1] }), "`params`: it is an array"),
        (json!({ "action": "rollback", "params": {} }), "goes with the actions `retry`"),
    ] {
        let answer = server.post(&format!("/v1/tasks/{id}/steps/one/resolve"), &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{answer:?}");
    }
    assert_eq!(server.task(&id).await["status"], "stuck");
}

#[tokio::test]
async fn what_waits_for_a_person_is_named_with_what_may_be_decided_of_it() {
    let server = Server::start().await;
    let flow = "
steps:
  - { name: top, run: m.top }
  - { name: left, run: left.do, after: [top] }
  - { name: right, run: right.do, rollback: undo.right, after: [top] }
";
    server.apply("f", flow).await;
    let id = server.submit("f", json!({})).await;
    let failed = json!({ "error": { "message": "no", "retryable": false } });
    let modules = [("m", "succeeded"), ("right", "succeeded"), ("left", "failed"), ("undo", "failed")];
    for (session, (module, outcome)) in (1..).zip(modules) {
        let said = if outcome == "failed" { failed.clone() } else { json!({}) };
        Worker::new(&server, session, &[module]).run(outcome, said).await;
    }
    let task = server.task(&id).await;
    // The step that failed is not the one that waits.
    assert_eq!(
        task["stuck"],
        json!({ "kind": "rollback_failed", "step": "right", "choices": ["retry", "skip", "done"] })
    );
    let skip = json!({ "action": "skip" });
    assert_eq!(
        server.post(&format!("/v1/tasks/{id}/steps/right/resolve"), &skip).await.status,
        StatusCode::OK
    );
    assert_eq!(server.task(&id).await["stuck"], json!(null));

    server.apply("g", "on_error: m.note\nsteps: [{ name: one, run: m.one }]\n").await;
    let id = server.submit("g", json!({})).await;
    let mut worker = Worker::new(&server, 9, &["m"]);
    worker.run("failed", failed.clone()).await;
    worker.run("failed", failed).await;
    let task = server.task(&id).await;
    assert_eq!(task["stuck"]["step"], "on_error");

    server.apply("h", FLOW).await;
    let id = server.submit("h", json!({})).await;
    worker.run("failed", json!({ "error": { "message": "no" } })).await;
    let choices = json!(["retry", "skip", "done", "rollback"]);
    assert_eq!(server.task(&id).await["stuck"], json!({ "kind": "held", "step": "one", "choices": choices }));
}
