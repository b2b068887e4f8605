//! Signals: a step waits for an operator or for another program, and goes on with what they say.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use windlass_core::{Action, Doer, Flow, Name, StepDefinition, TIMEOUT_DEFAULT};

use super::server::{Answer, Server, Worker, json_request};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A step that waits for `approved`, then one of a worker.
async fn approval(server: &Server) {
    let worker = || Action::of_worker(name("m"), name("c"));
    let wait = Action { doer: Doer::Signal { name: name("approved") }, ..worker() };
    assert_eq!(wait.timeout, TIMEOUT_DEFAULT);
    let steps = vec![
        StepDefinition::new(name("prepare"), worker(), vec![]),
        StepDefinition::new(name("approve"), wait, vec![0]),
        StepDefinition::new(name("release"), worker(), vec![1]),
    ];
    let now = server.app.clock.now();
    server.app.engine.apply_flow(Flow::new(name("f"), steps), now).await.unwrap();
}

async fn send(server: &Server, id: &str, signal: &str, body: &str) -> Answer {
    let mut request = json_request(Method::POST, &format!("/v1/tasks/{id}/signals/{signal}"), body);
    request.headers_mut().insert("windlass-actor", "kim".parse().unwrap());
    server.send(request).await
}

async fn events(server: &Server, id: &str, kind: &str) -> Vec<Value> {
    let list = server.get(&format!("/v1/tasks/{id}/events")).await.json();
    let items = list["items"].as_array().unwrap().iter();
    items.filter(|event| event["kind"] == kind).cloned().collect()
}

#[tokio::test]
async fn a_step_that_waits_is_done_by_the_signal_and_returns_what_came_with_it() {
    let server = Server::start().await;
    approval(&server).await;
    let id = server.submit("f", json!({ "size": 3 })).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("succeeded", json!({})).await;
    assert_eq!(server.task(&id).await["steps"][1]["waits_for"], "signal approved");
    let answer = send(&server, &id, "approved", r#"{"params":{"limit":2.50}}"#).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let step = &answer.json()["steps"][1];
    assert_eq!((&step["status"], &step["result"]), (&json!("succeeded"), &json!({ "limit": 2.50 })));
    let release = worker.run("succeeded", json!({})).await;
    assert_eq!(release["params"], json!({ "size": 3, "limit": 2.50 }));
    assert_eq!(server.task(&id).await["status"], "succeeded");
    let received = events(&server, &id, "step.signalled").await;
    assert_eq!((&received[0]["actor"], &received[0]["step"]), (&json!("kim (claimed)"), &json!("approve")));
}

#[tokio::test]
async fn a_signal_that_comes_early_is_kept_unless_it_is_for_now() {
    let server = Server::start().await;
    approval(&server).await;
    let id = server.submit("f", json!({})).await;
    let refused = send(&server, &id, "approved", r#"{"keep":false}"#).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.json()["detail"].as_str().unwrap().contains("approved"), "{refused:?}");
    // Without a body at all it is kept, as is the default.
    let kept = server.verb(&format!("/v1/tasks/{id}/signals/approved")).await;
    assert_eq!(kept.status, StatusCode::OK, "{kept:?}");
    assert_eq!(events(&server, &id, "task.signal_kept").await[0]["actor"], "ops (claimed)");
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("succeeded", json!({})).await;
    assert_eq!(server.task(&id).await["steps"][1]["status"], "succeeded", "it waits for nobody any more");
}

#[tokio::test]
async fn signals_that_mean_nothing_are_refused() {
    let server = Server::start().await;
    approval(&server).await;
    let id = server.submit("f", json!({})).await;
    let nobody = "00000000-0000-7000-8000-000000000000";
    for (id, signal, body, status, problem, detail) in [
        (&*id, "aproved", "{}", 404, "unknown-signal", "aproved"),
        (&*id, "a%20b", "{}", 400, "malformed", "the name in the path"),
        (nobody, "approved", "{}", 404, "unknown-task", nobody),
        (&*id, "approved", r#"{"params":[1]}"#, 400, "malformed", "`params`: it is an array"),
        (&*id, "approved", r#"{"keep":"no"}"#, 400, "malformed", "keep"),
        (&*id, "approved", r#"{"param":{}}"#, 400, "malformed", "param"),
    ] {
        let answer = send(&server, id, signal, body).await;
        let document = answer.json();
        assert_eq!(answer.status.as_u16(), status, "{signal} {body}: {answer:?}");
        assert!(document["type"].as_str().unwrap().ends_with(problem), "{document}");
        assert!(document["detail"].as_str().unwrap().contains(detail), "{document}");
    }
    let large = format!(r#"{{"params":{{"a":"{}"}}}}"#, "x".repeat(256 << 10));
    assert_eq!(send(&server, &id, "approved", &large).await.status.as_u16(), 413);
    server.verb(&format!("/v1/tasks/{id}/cancel")).await;
    assert_eq!(send(&server, &id, "approved", "{}").await.status, StatusCode::CONFLICT, "it has ended");
}
