//! Steps that are done for each element of a list: how many members are where, and each of them.

use axum::http::StatusCode;
use serde_json::{Value, json};
use windlass_core::{Action, Each, Flow, Name, OnPartial, StepDefinition};

use super::server::{Server, Worker};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A step for each file, two at once, that may fail in part, and one after them.
async fn fan(server: &Server, on_partial: OnPartial) {
    let action = |command: &str| Action::of_worker(name("m"), name(command));
    let resize = StepDefinition {
        each: Some(Each { list: "files".into(), parallel: 2 }),
        on_partial,
        rollback: Some(action("remove")),
        ..StepDefinition::new(name("resize"), action("resize"), vec![])
    };
    let join = StepDefinition::new(name("join"), action("join"), vec![0]);
    let now = windlass_store::Now { wall: windlass_core::Timestamp(0), mono: windlass_core::Millis(0) };
    let flow = Flow::new(name("f"), vec![resize, join]);
    server.app.engine.apply_flow(flow, now).await.unwrap();
}

async fn members(server: &Server, id: &str, query: &str) -> Value {
    let answer = server.get(&format!("/v1/tasks/{id}/steps/resize/members{query}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.json()
}

fn indices(list: &Value) -> Vec<u64> {
    list["items"].as_array().unwrap().iter().map(|item| item["index"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn members_are_counted_and_listed() {
    let server = Server::start().await;
    fan(&server, OnPartial::Continue).await;
    let id = server.submit("f", json!({ "files": ["a", "b", "c", "d"] })).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    let first = worker.run("succeeded", json!({ "result": { "size": 1 } })).await;
    assert_eq!(first["params"], json!({ "item": "a", "index": 0 }));
    worker.run("failed", json!({ "error": { "message": "no image", "code": 3 } })).await;
    worker.take().await;
    let task = server.task(&id).await;
    let step = &task["steps"][0];
    assert_eq!(
        step["members"],
        json!({ "total": 4, "pending": 0, "ready": 1, "running": 1, "succeeded": 1, "failed": 1, "skipped": 0 })
    );
    assert_eq!((&step["status"], &step["started_at"].is_string()), (&json!("running"), &true));

    let all = members(&server, &id, "").await;
    let statuses: Vec<&str> =
        all["items"].as_array().unwrap().iter().map(|item| item["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["succeeded", "failed", "running", "ready"]);
    assert_eq!(all["items"][0]["result"], json!({ "size": 1 }));
    assert_eq!((&all["items"][1]["message"], &all["items"][1]["code"]), (&json!("no image"), &json!(3)));
    assert_eq!(all["items"][2]["worker"], "worker-1");
    assert_eq!(all["items"][0]["rollback"]["status"], "pending");

    let page = members(&server, &id, "?limit=2").await;
    assert_eq!((indices(&page), &page["next"]), (vec![0, 1], &json!("2")));
    let rest = members(&server, &id, "?limit=2&cursor=2").await;
    assert_eq!((indices(&rest), &rest["next"]), (vec![2, 3], &json!(null)));
    assert_eq!(indices(&members(&server, &id, "?status=failed,ready").await), [1, 3]);
    assert_eq!(indices(&members(&server, &id, "?status=failed&status=ready&limit=1").await), [1]);
}

#[tokio::test]
async fn what_will_not_be_done_any_more_is_skipped_and_what_was_is_undone() {
    let server = Server::start().await;
    fan(&server, OnPartial::Fail).await;
    let id = server.submit("f", json!({ "files": [1, 2, 3, 4, 5] })).await;
    assert_eq!(server.task(&id).await["steps"][0]["members"]["pending"], 3, "two at once");
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("succeeded", json!({})).await;
    worker.run("failed", json!({ "error": { "message": "no", "retryable": false } })).await;
    while !worker_is_idle(&mut worker).await {}
    let task = server.task(&id).await;
    assert_eq!(task["status"], "rolled_back", "{task}");
    let counts = &task["steps"][0]["members"];
    assert_eq!((&counts["succeeded"], &counts["failed"]), (&json!(1), &json!(1)), "{counts}");
    assert_eq!((&counts["skipped"], &counts["pending"]), (&json!(3), &json!(0)), "{counts}");
    let undone = members(&server, &id, "?status=succeeded").await;
    assert_eq!(undone["items"][0]["rollback"]["status"], "succeeded", "{undone}");
}

/// Does what there is to do; returns whether there was nothing.
async fn worker_is_idle(worker: &mut Worker<'_>) -> bool {
    let attempts = worker.poll().await["attempts"].as_array().unwrap().clone();
    for attempt in &attempts {
        assert_eq!(worker.report(attempt, "succeeded", json!({})).await, "accepted");
    }
    attempts.is_empty()
}

#[tokio::test]
async fn lists_of_members_that_make_no_sense_are_refused() {
    let server = Server::start().await;
    fan(&server, OnPartial::Fail).await;
    let id = server.submit("f", json!({ "files": [1] })).await;
    for (path, status, detail) in [
        ("join/members", 404, "step \"join\" has no items"),
        ("joint/members", 404, "it has resize, join"),
        ("resize/members?status=done", 400, "succeeded"),
        ("resize/members?cursor=x", 400, "whole number"),
        ("resize/members?limit=0", 400, "from 1 to 1000"),
        ("resize/members?page=2", 400, "status, cursor, limit"),
    ] {
        let answer = server.get(&format!("/v1/tasks/{id}/steps/{path}")).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{path}: {answer:?}");
    }
    assert_eq!(indices(&members(&server, &id, "?cursor=99").await), [] as [u64; 0], "after the last one");
}
