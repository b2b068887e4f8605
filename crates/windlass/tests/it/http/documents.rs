//! The documents of a task and of an alarm in the places they can be in, and their classic form.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::server::{Server, Worker};

/// The worked example of the classic system, as it stood there.
const CLASSIC: &str = r#"{
  "modify_ntp": [
    { // resources
      "normal": {"module":"resource","command":"check_resource","timeout":300,"retry":0},
      "rollback": {"module":"monitor","command":"report_event","timeout":300,"retry":3}, },
    { // the instance
      "normal": {"module":"mysql","command":"init_instance","timeout":1800,"retry":3},
      "rollback": {"module":"mysql","command":"clean_instance","timeout":900,"retry":3} },
    { "normal": {"module":"resource","command":"deduct_resource","timeout":200,"retry":2},
      "rollback": {"module":"resource","command":"restore_resource","timeout":200,"retry":2} },
  ],
}"#;

fn pretty(document: &Value) -> String {
    serde_json::to_string_pretty(document).unwrap()
}

async fn server() -> Server {
    let server = Server::start().await;
    let request = super::server::json_request(axum::http::Method::PUT, "/v1/flows/modify_ntp", CLASSIC);
    let applied = server.send(request).await;
    assert_eq!(applied.status.as_u16(), 201, "{applied:?}");
    server
}

#[tokio::test]
async fn the_life_of_a_task() {
    let server = server().await;
    let id = server.submit("modify_ntp", json!({ "Cpu": 4, "Memory": 8, "Storage": 500 })).await;
    assert_snapshot!("task_pending", pretty(&server.task(&id).await));
    let classic = format!("/v1/tasks/{id}?view=classic");
    assert_snapshot!("classic_pending", pretty(&server.get(&classic).await.json()));

    let mut worker = Worker::new(&server, 1, &["resource", "monitor", "mysql"]);
    server.pass(2000).await;
    worker.run("succeeded", json!({ "result": { "Host": "db-7" } })).await;
    server.pass(1500).await;
    worker.take().await;
    assert_snapshot!("task_running", pretty(&server.task(&id).await));
    assert_snapshot!("classic_running", pretty(&server.get(&classic).await.json()));

    let attempt = worker.take().await;
    let refused = |message: &str, code: i32| json!({ "error": { "message": message, "code": code, "retryable": false } });
    worker.report(&attempt, "failed", refused("no space", 28)).await;
    assert_eq!(server.get(&classic).await.json()["TaskStatus"], 3);
    server.pass(500).await;
    worker.run("failed", refused("cannot clean", 1)).await;
    server.pass(0).await;
    assert_snapshot!("task_stuck", pretty(&server.task(&id).await));
    assert_snapshot!("classic_stuck", pretty(&server.get(&classic).await.json()));
    let alarms = server.get("/v1/alarms").await.json();
    assert_snapshot!("alarms", pretty(&alarms));
    let alarm = alarms["items"][0]["id"].as_str().unwrap();
    let seen = server.verb(&format!("/v1/alarms/{alarm}/acknowledge")).await.json();
    assert_eq!((&seen["state"], &seen["by"]), (&json!("acknowledged"), &json!("ops (claimed)")));

    let done = json!({ "action": "done", "params": { "Cleaned": true } });
    let steps: Vec<Value> = server.task(&id).await["steps"].as_array().unwrap().clone();
    let stuck = steps.iter().find(|step| step["status"] == "rollback_failed").unwrap();
    let path = format!("/v1/tasks/{id}/steps/{}/resolve", stuck["name"].as_str().unwrap());
    assert_eq!(server.post(&path, &done).await.status.as_u16(), 200);
    server.pass(250).await;
    worker.run("succeeded", json!({})).await;
    server.pass(0).await;
    assert_snapshot!("task_rolled_back", pretty(&server.task(&id).await));
    assert_snapshot!("classic_rolled_back", pretty(&server.get(&classic).await.json()));
    assert_eq!(server.get("/v1/alarms").await.json()["items"], json!([]));
    assert_eq!(server.get("/v1/alarms?all=true").await.json()["items"][0]["state"], "resolved");
    assert_eq!(server.verb(&format!("/v1/alarms/{alarm}/acknowledge")).await.status.as_u16(), 409);
}

#[tokio::test]
async fn the_tag_of_a_document_changes_with_it() {
    let server = server().await;
    let id = server.submit("modify_ntp", json!({})).await;
    let path = format!("/v1/tasks/{id}");
    let known = server.get(&path).await.header("etag").unwrap().to_owned();
    let again = async |tag: &str| {
        let request = axum::http::Request::get(&path).header("if-none-match", tag);
        server.send(request.body(axum::body::Body::empty()).unwrap()).await
    };
    let same = again(&known).await;
    assert_eq!((same.status.as_u16(), same.text.as_str()), (304, ""));
    assert_eq!(same.header("etag"), Some(known.as_str()));
    assert_eq!(again(&format!("\"x\", W/{known}")).await.status.as_u16(), 304);
    // Handing an attempt out is not an event, and changes the document nevertheless.
    let mut worker = Worker::new(&server, 1, &["resource"]);
    let attempt = worker.take().await;
    let running = again(&known).await;
    assert_eq!((running.status.as_u16(), &running.json()["status"]), (200, &json!("running")));
    let known = running.header("etag").unwrap().to_owned();
    worker.report(&attempt, "running", json!({ "progress": { "value": 0.5 } })).await;
    assert_eq!(again(&known).await.status.as_u16(), 200);
}

#[tokio::test]
async fn a_flow_is_stored_under_versions() {
    let server = server().await;
    let flow = "steps: [{ name: a, run: m.c, retry: 3, timeout: 1h }]";
    let check = async |yaml: &str| {
        let request =
            axum::http::Request::post("/v1/flows/check").header("content-type", "text/yaml; charset=utf-8");
        server.send(request.body(format!("flow: f\n{yaml}").into()).unwrap()).await.json()
    };
    assert_eq!(check(flow).await, json!({ "name": "f", "version": 1, "change": "created" }));
    assert_eq!(server.get("/v1/flows/f").await.status.as_u16(), 404, "a check stores nothing");
    let created = server.apply("f", flow).await;
    assert_eq!(
        (created.status.as_u16(), created.json()),
        (201, json!({ "name": "f", "version": 1, "change": "created" }))
    );
    let unchanged = server.apply("f", &format!("# a comment\nflow: f\n{flow}")).await;
    assert_eq!((unchanged.status.as_u16(), &unchanged.json()["change"]), (200, &json!("unchanged")));
    let task = server.submit("f", json!({})).await;

    let changed = "steps: [{ name: a, run: m.d }]";
    assert_eq!(check(changed).await, json!({ "name": "f", "version": 2, "change": "updated" }));
    let updated = server.apply("f", changed).await;
    assert_eq!(
        (updated.status.as_u16(), updated.json()),
        (200, json!({ "name": "f", "version": 2, "change": "updated" }))
    );
    assert_eq!(server.task(&task).await["version"], 1, "a running task keeps its version");
    let old = server.get("/v1/flows/f?version=1").await.json();
    assert_eq!(
        old,
        json!({
            "name": "f", "version": 1, "created_at": "2030-03-17T17:46:41Z",
            "definition": { "flow": "f", "steps": [{ "name": "a", "run": "m.c", "timeout": "1h", "retry": 3 }] },
        })
    );
    let list = server.get("/v1/flows").await.json();
    let names: Vec<(&str, u64)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flow| (flow["name"].as_str().unwrap(), flow["version"].as_u64().unwrap()))
        .collect();
    assert_eq!(names, [("f", 2), ("modify_ntp", 1)]);
    assert_eq!(server.submit("f@1", json!({})).await.len(), 36);
}

#[tokio::test]
async fn flows_come_in_pages() {
    let server = Server::start().await;
    for name in ["c", "a", "b-1", "b"] {
        server.apply(name, "steps: [{ name: a, run: m.c }]").await;
    }
    let (mut names, mut path) = (Vec::new(), "/v1/flows?limit=2".to_owned());
    for expected in [2, 2] {
        let page = server.get(&path).await.json();
        let items = page["items"].as_array().unwrap();
        assert_eq!(items.len(), expected);
        names.extend(items.iter().map(|flow| flow["name"].as_str().unwrap().to_owned()));
        path = format!("/v1/flows?limit=2&cursor={}", page["next"].as_str().unwrap_or_default());
    }
    assert_eq!(names, ["a", "b", "b-1", "c"]);
    assert!(path.ends_with("cursor="), "the last page has no next one: {path}");
}
