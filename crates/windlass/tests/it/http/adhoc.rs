//! Tasks that bring their steps along.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::server::{Answer, Server, Worker, json_request};

fn two_steps() -> Value {
    json!([{ "name": "one", "run": "m.one" }, { "name": "two", "run": "m.two", "timeout": "90s" }])
}

async fn submit(server: &Server, body: &Value) -> Answer {
    server.post("/v1/tasks", body).await
}

#[tokio::test]
async fn steps_run_as_a_flow_of_their_own_that_lists_leave_out() {
    let server = Server::start().await;
    let answer = submit(&server, &json!({ "steps": two_steps(), "params": { "a": 1 } })).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    let task = answer.json();
    let flow = task["flow"].as_str().unwrap();
    assert!(flow.starts_with("adhoc-") && flow.len() == 22, "{flow}");
    let mut worker = Worker::new(&server, 1, &["m"]);
    worker.run("succeeded", json!({ "result": { "b": 2 } })).await;
    let second = worker.run("succeeded", json!({})).await;
    assert_eq!((&second["params"], &second["timeout_ms"]), (&json!({ "a": 1, "b": 2 }), &json!(90_000)));
    assert_eq!(server.task(task["id"].as_str().unwrap()).await["status"], "succeeded");

    assert_eq!(server.get("/v1/flows").await.json()["items"], json!([]));
    let all = server.get("/v1/flows?all=true").await.json();
    assert_eq!(all["items"][0]["name"], flow);
    assert_eq!(server.get(&format!("/v1/flows/{flow}")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_same_steps_are_stored_once_however_they_are_written() {
    let server = Server::start().await;
    let flow = async |steps: Value| {
        let answer = submit(&server, &json!({ "steps": steps })).await.json();
        (answer["flow"].clone(), answer["version"].clone())
    };
    let first = flow(two_steps()).await;
    let spelled_out = json!([
        { "run": "m.one", "name": "one", "retry": 0, "after": [] },
        { "name": "two", "run": "m.two", "timeout": "1m30s" },
    ]);
    assert_eq!(flow(spelled_out).await, first);
    assert_eq!(first.1, 1);
    assert_ne!(flow(json!([{ "name": "one", "run": "m.one" }])).await.0, first.0);
    let held = submit(&server, &json!({ "steps": two_steps(), "on_failure": "hold" })).await.json();
    assert_ne!(held["flow"], first.0);
    assert_eq!(server.get("/v1/flows?all=true").await.json()["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn keys_and_batches_work_as_with_flows() {
    let server = Server::start().await;
    let id = async |body: Value| submit(&server, &body).await.json()["id"].clone();
    let first = id(json!({ "steps": two_steps(), "key": "k" })).await;
    assert_eq!(id(json!({ "steps": two_steps(), "key": "k" })).await, first);
    let other = json!({ "steps": [{ "name": "x", "run": "m.x" }], "key": "k" });
    assert_eq!(submit(&server, &other).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let batch = json!({ "tasks": [{ "steps": two_steps() }, { "steps": [] }, { "steps": two_steps() }] });
    let results = server.post("/v1/tasks/batch", &batch).await.json()["results"].clone();
    let statuses: Vec<u64> =
        results.as_array().unwrap().iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 400, 202], "{results}");
}

#[tokio::test]
async fn mistakes_are_told_with_their_path_and_their_place() {
    let server = Server::start().await;
    let body = "{\n \"params\": {},\n \"steps\": [\n  {\"name\": \"a\", \"run\": \"m.a\"},\n  {\"name\": \"b\", \"run\": \"m.b\", \"after\": [\"c\"]}]}";
    let answer = server.send(json_request(Method::POST, "/v1/tasks", body)).await;
    let problem = answer.json();
    assert_eq!(
        (answer.status.as_u16(), &problem["line"], &problem["column"]),
        (400, &json!(5), &json!(41)),
        "{problem}"
    );
    assert!(problem["detail"].as_str().unwrap().starts_with("steps[1].after[0]: "), "{problem}");
    for (body, detail) in [
        (json!({}), "`flow`, the name of a flow, or `steps`"),
        (json!({ "flow": "f", "steps": two_steps() }), "and also steps of its own"),
        (json!({ "flow": "f", "on_failure": "hold" }), "and also steps of its own"),
        (json!({ "on_failure": "hold" }), "or `steps`"),
        (json!({ "steps": [] }), "at least one step"),
        (json!({ "steps": {} }), "steps: "),
        (json!({ "steps": [{ "name": "a" }] }), "steps[0]: "),
        (json!({ "steps": [{ "name": "a", "run": "a" }] }), "steps[0].run: "),
        (json!({ "steps": [{ "name": "a", "run": "m.a", "tiemout": "5m" }] }), "did you mean `timeout`"),
        (
            json!({ "steps": [{ "name": "a", "run": "m.a" }, { "name": "a", "run": "m.a" }] }),
            "steps[1].name: ",
        ),
        (json!({ "steps": two_steps(), "on_failure": "stop" }), "on_failure: "),
    ] {
        let answer = submit(&server, &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{body}: {answer:?}");
    }
    let many: Vec<Value> = (0..257).map(|n| json!({ "name": format!("s{n}"), "run": "m.c" })).collect();
    assert!(
        submit(&server, &json!({ "steps": many })).await.json()["detail"].as_str().unwrap().contains("256")
    );
    let taken = json!({ "steps": [{ "name": "a", "run": "m.a" }] });
    let answer =
        server.send(json_request(Method::PUT, "/v1/flows/adhoc-0123456789abcdef", &taken.to_string())).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{answer:?}");
    assert_eq!(server.get("/v1/flows?all=true").await.json()["items"], json!([]), "nothing was stored");
}

#[tokio::test]
async fn of_tasks_with_the_same_steps_one_with_a_unique_key_runs() {
    let server = Server::start().await;
    let order = async |order: u32, on_conflict: &str| {
        let unique = json!({ "key": "order", "on_conflict": on_conflict });
        let params = json!({ "order": order });
        submit(&server, &json!({ "steps": two_steps(), "unique": unique, "params": params })).await
    };
    let first = order(1, "return").await;
    assert_eq!(first.status, StatusCode::ACCEPTED, "{first:?}");
    let again = order(1, "return").await;
    assert_eq!((again.status, again.header("windlass-existing")), (StatusCode::OK, Some("unique")));
    assert_eq!(again.json()["id"], first.json()["id"]);
    assert_eq!(order(2, "return").await.status, StatusCode::ACCEPTED);
    assert_eq!(order(1, "fail").await.status, StatusCode::ACCEPTED, "these steps are others");
    let refused = order(1, "fail").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.json()["type"].as_str().unwrap().ends_with("/unique-conflict"), "{refused:?}");
    let bad = submit(&server, &json!({ "steps": two_steps(), "unique": { "while": "running" } })).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    assert!(bad.json()["detail"].as_str().unwrap().contains("unique"), "{bad:?}");
}
