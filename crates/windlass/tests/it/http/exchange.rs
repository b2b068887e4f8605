//! Workers: what they are handed, and what becomes of their reports.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::server::{PATIENCE, Server, Worker};

const FLOW: &str = "
params: { region: eu }
steps:
  - { name: first, run: one.do, rollback: one.undo, timeout: 90s }
  - { name: second, run: two.do, retry: 1 }
";

async fn server() -> Server {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    server
}

#[tokio::test]
async fn an_attempt_has_all_that_a_worker_needs() {
    let server = server().await;
    let id = server.submit("f", json!({ "a": 1 })).await;
    let mut worker = Worker::new(&server, 1, &["one", "two"]);
    let mut attempt = worker.run("succeeded", json!({ "result": { "b": 2.50 } })).await;
    assert!(attempt["token"].take().as_str().unwrap().len() > 40);
    assert_eq!(
        attempt,
        json!({
            "token": null, "task": id, "flow": "f", "step": "first", "cursor": 0, "direction": "forward",
            "attempt": 1, "module": "one", "command": "do", "params": { "region": "eu", "a": 1 },
            "timeout_ms": 90_000, "idempotency_key": format!("{id}/first/0/forward"),
        })
    );
    let error = json!({ "error": { "message": "no space", "code": 28, "retryable": false } });
    let second = worker.run("failed", error).await;
    assert_eq!(second["params"], json!({ "region": "eu", "a": 1, "b": 2.50 }));
    let undo = worker.run("succeeded", json!({})).await;
    assert_eq!((&undo["direction"], &undo["command"]), (&json!("rollback"), &json!("undo")));
    assert_eq!(
        (&undo["error"], &undo["result"]),
        (&json!("step second failed: no space"), &json!({ "b": 2.50 }))
    );
    assert_eq!(server.task(&id).await["status"], "rolled_back");
}

#[tokio::test]
async fn payloads_are_passed_on_as_they_came() {
    let server = server().await;
    let text = r#"{"flow":"f","params":{"z":1.0,"a":123456789012345678901234567890,"é":"\u00e9"}}"#;
    let request = super::server::json_request(axum::http::Method::POST, "/v1/tasks", text);
    let answer = server.send(request).await.text;
    let params = r#"{"z":1.0,"a":123456789012345678901234567890,"é":"\u00e9"}"#;
    assert!(answer.contains(&format!(r#""params":{params}"#)), "{answer}");
    let modules = json!([{ "name": "one", "free": 1 }]);
    let handed_out = Worker::new(&server, 1, &[]).call(json!({ "modules": modules })).await.text;
    assert!(handed_out.contains(&params[1..]), "{handed_out}");
}

#[tokio::test]
async fn one_bad_report_does_not_fail_the_others() {
    let server = server().await;
    let id = server.submit("f", json!({})).await;
    let other = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["one"]);
    let (first, second) = (worker.take().await, {
        // Naming what it holds, so that it is given another one.
        let token = server_token(&mut worker).await;
        assert_ne!(token["token"], json!(null));
        token
    });
    let (mine, next) = (first["token"].clone(), second["token"].clone());
    let forged = format!("A{}", &mine.as_str().unwrap()[1..].replace('A', "B"));
    let large = "x".repeat(256 << 10);
    let reports = json!([
        { "token": mine, "outcome": "succeeded", "result": [1] },
        { "token": mine, "outcome": "succeeded", "result": { "a": large } },
        { "token": mine, "outcome": "finished" },
        { "token": mine, "outcome": "succeeded", "error": { "message": "but" } },
        { "token": mine, "outcome": "running", "progress": { "value": 2 } },
        { "token": mine, "outcome": "succeeded", "extra": true },
        { "outcome": "succeeded" },
        7,
        { "token": forged, "outcome": "succeeded" },
        { "token": "no token", "outcome": "succeeded" },
        { "token": next, "outcome": "succeeded", "result": { "b": 1 } },
        { "token": next, "outcome": "succeeded", "result": { "b": 1 } },
    ]);
    let answer = worker.call(json!({ "reports": reports })).await;
    assert_eq!(answer.status, StatusCode::OK);
    let answers = answer.json()["reports"].as_array().unwrap().clone();
    let found: Vec<(&str, &str)> = answers
        .iter()
        .map(|answer| (answer["status"].as_str().unwrap(), answer["detail"].as_str().unwrap_or_default()))
        .collect();
    let expected = [
        ("invalid", "`result`: it is an array"),
        ("invalid", "may have 256 KiB"),
        ("invalid", "unknown variant `finished`"),
        ("invalid", "`error` does not go with this outcome"),
        ("invalid", "from 0 to 1"),
        ("invalid", "unknown field `extra`"),
        ("invalid", "report 7 has no token"),
        ("invalid", "report 8 has no token"),
        ("unknown", ""),
        ("unknown", ""),
        ("accepted", ""),
        ("duplicate", ""),
    ];
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.0 == expected.0 && found.1.contains(expected.1), "{found:?} is not {expected:?}");
    }
    assert_eq!(answers[0]["token"], mine, "an answer names the report");
    // The attempt with the bad reports goes on.
    let (task, moved) = (server.task(&id).await, server.task(&other).await);
    let statuses = [&task, &moved].map(|task| task["steps"][0]["status"].as_str().unwrap().to_owned());
    assert!(
        statuses.contains(&"running".to_owned()) && statuses.contains(&"succeeded".to_owned()),
        "{statuses:?}"
    );
    assert_eq!(worker.report(&first, "succeeded", json!({})).await, "accepted");
}

/// Takes one more attempt beside the one the worker has.
async fn server_token(worker: &mut Worker<'_>) -> Value {
    let modules = json!([{ "name": "one", "free": 1 }]);
    // Not saying what it holds, nothing is given again.
    worker.call(json!({ "modules": modules })).await.json()["attempts"][0].clone()
}

#[tokio::test]
async fn a_stale_token_changes_nothing() {
    let server = server().await;
    let id = server.submit("f", json!({})).await;
    let mut first = Worker::new(&server, 1, &["one"]);
    let lost = first.take().await;
    server.pass(31_000).await;
    let mut second = Worker::new(&server, 2, &["one"]);
    let taken = second.take().await;
    assert_eq!(
        (taken["attempt"].clone(), taken["idempotency_key"].clone()),
        (json!(2), lost["idempotency_key"].clone())
    );
    assert_eq!(first.report(&lost, "succeeded", json!({ "result": { "late": true } })).await, "stale");
    assert_eq!(server.task(&id).await["steps"][0]["status"], "running");
    assert_eq!(second.report(&taken, "succeeded", json!({})).await, "accepted");
    assert_eq!(server.task(&id).await["steps"][0].get("result"), None);
}

#[tokio::test]
async fn an_attempt_that_did_not_arrive_is_given_again() {
    let server = server().await;
    server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["one"]);
    let first = worker.take().await;
    assert_eq!(worker.take().await, first, "absent from `holding`, under the same token");
    let holding = json!({ "holding": [first["token"]] });
    assert_eq!(worker.call(holding).await.json()["attempts"], json!([]));
}

#[tokio::test]
async fn other_outcomes() {
    let server = server().await;
    let id = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["one"]);
    let attempt = worker.take().await;
    let running =
        json!({ "progress": { "value": 0.25, "message": "copying" }, "logs": ["line 1", "line 2"] });
    assert_eq!(worker.report(&attempt, "running", running).await, "accepted");
    let step = &server.task(&id).await["steps"][0];
    assert_eq!(step["progress"], json!({ "value": 0.25, "message": "copying" }));
    assert_eq!(step["worker"], "worker-1");
    let logs = server.get(&format!("/v1/tasks/{id}/logs?limit=1")).await.json();
    assert_eq!((&logs["items"][0]["line"], &logs["items"][0]["step"]), (&json!("line 1"), &json!("first")));
    let next = logs["next"].as_str().unwrap();
    let logs = server.get(&format!("/v1/tasks/{id}/logs?cursor={next}")).await.json();
    assert_eq!((&logs["items"][0]["line"], &logs["next"]), (&json!("line 2"), &json!(null)));

    assert_eq!(
        worker
            .report(&attempt, "retry_later", json!({ "delay_ms": 5000, "error": { "message": "busy" } }))
            .await,
        "accepted"
    );
    assert_eq!(worker.poll().await["attempts"], json!([]), "not before its time");
    server.pass(5000).await;
    let again = worker.take().await;
    assert_eq!(again["attempt"], 2);
    assert_eq!(worker.report(&again, "declined", json!({})).await, "accepted");
    assert_eq!(worker.take().await["attempt"], 2, "not counted");
}

#[tokio::test]
async fn a_cancelled_attempt_is_told_so() {
    let server = server().await;
    let id = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["one"]);
    let attempt = worker.take().await;
    let held = json!({ "holding": [attempt["token"]], "wait_ms": 30_000 });
    let (answer, cancelled) = tokio::join!(tokio::time::timeout(PATIENCE, worker.call(held)), async {
        tokio::task::yield_now().await;
        server.verb(&format!("/v1/tasks/{id}/cancel")).await
    });
    assert_eq!(answer.unwrap().json()["cancels"], json!([attempt["token"]]));
    assert_eq!((cancelled.status, &cancelled.json()["status"]), (StatusCode::OK, &json!("rolling_back")));
    assert_eq!(
        worker.report(&attempt, "failed", json!({ "error": { "message": "stopped" } })).await,
        "accepted"
    );
    assert_eq!(worker.run("succeeded", json!({})).await["direction"], "rollback");
    let task = server.task(&id).await;
    assert_eq!(
        (&task["status"], &task["message"]),
        (&json!("cancelled"), &json!("cancelled by ops (claimed)"))
    );
}

#[tokio::test]
async fn a_paused_queue_hands_nothing_out() {
    let server = server().await;
    server.submit("f", json!({})).await;
    let paused = server.verb("/v1/queues/one/pause").await.json();
    assert_eq!((&paused["paused"], &paused["ready"]), (&json!(true), &json!(1)));
    let mut worker = Worker::new(&server, 1, &["one"]);
    assert_eq!(worker.poll().await["attempts"], json!([]));
    assert_eq!(server.verb("/v1/queues/one/resume").await.json()["paused"], false);
    worker.take().await;
    let queues = server.get("/v1/queues").await.json();
    assert_eq!(
        queues["items"][0],
        json!({ "name": "one", "ready": 0, "running": 1, "oldest_ready_at": null, "paused": false, "workers": 1, "draining": 0 })
    );
    assert_eq!(queues["items"][1]["name"], "two");
    let workers = server.get("/v1/workers").await.json();
    assert_eq!(
        (&workers["items"][0]["name"], &workers["items"][0]["running"]),
        (&json!("worker-1"), &json!(1))
    );
}
