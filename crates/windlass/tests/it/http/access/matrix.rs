//! Every operation of the contract × every role × no scope, in scope, out of scope: nothing passes that must not.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::{
    super::server::{Answer, json_request},
    Guarded, exchange,
    operations::{Scope, Target, expected, request},
    refused,
};

const ROLES: [&str; 4] = ["viewer", "operator", "admin", "worker"];

/// A token of the matrix.
struct Holder {
    role: &'static str,
    is_limited: bool,
    secret: String,
}

/// A server with a flow and a task in scope, others out of scope, and a token of each role with and without a scope.
async fn world() -> (Guarded, [Target; 2], Vec<Holder>) {
    let guarded = Guarded::start().await;
    let mut targets = Vec::new();
    for (flow, queue) in [("mine", "own"), ("theirs", "foreign")] {
        guarded.apply(flow, queue).await;
        // A worker has an attempt of the first task; the others are acted on.
        guarded.submit(flow).await;
        let session = 0xf0 + u8::try_from(targets.len()).unwrap();
        let taken = guarded
            .post(&guarded.admin, "/v1/worker/exchange", &exchange(session, 1, &[queue], 1))
            .await
            .json();
        let attempt = taken["attempts"][0]["token"].as_str().unwrap().to_owned();
        let task = guarded.submit(flow).await;
        targets.push(Target { flow, queue, task, attempt });
    }
    let trigger = json!({ "http": { "unsigned": true }, "flows": [{ "flow": "mine" }] });
    let trigger = json_request(Method::PUT, "/v1/triggers/unsigned", &trigger.to_string());
    let answer = guarded.send(&guarded.admin, trigger).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let mut holders = Vec::new();
    for role in ROLES {
        let secret = guarded.token(&format!("{role}-of-all"), role, &[], &[]).await;
        holders.push(Holder { role, is_limited: false, secret });
        let flows: &[&str] = if role == "worker" { &[] } else { &["mine"] };
        // An admin cannot be limited.
        if role != "admin" {
            let secret = guarded.token(&format!("{role}-of-some"), role, &["own"], flows).await;
            holders.push(Holder { role, is_limited: true, secret });
        }
    }
    (guarded, targets.try_into().unwrap(), holders)
}

fn operations() -> Vec<(String, String, String)> {
    let document: Value = serde_json::from_str(&windlass::http::document()).unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            operations.push((id, method.clone(), path.clone()));
        }
    }
    operations
}

/// What became of a request; of a batch what became of its one task.
fn status(id: &str, answer: &Answer) -> u16 {
    let batch = (id == "submit_batch" && answer.status == StatusCode::OK).then(|| answer.json());
    let of_task = batch.and_then(|batch| batch["results"][0]["status"].as_u64());
    of_task.map_or(answer.status.as_u16(), |status| u16::try_from(status).unwrap())
}

#[tokio::test]
async fn nothing_passes_that_must_not() {
    let (guarded, targets, holders) = world().await;
    let (mut asked, mut bypasses, mut number) = (0, Vec::new(), 0);
    let operations = operations();
    for (id, method, path) in &operations {
        let Some((roles, scope)) = expected(id) else { panic!("{id} is new: say who may do it") };
        for (in_scope, target) in [(true, &targets[0]), (false, &targets[1])] {
            let mut ask = async |secret: &str| {
                number += 1;
                guarded.send(secret, request(id, method, path, target, number)).await
            };
            for secret in
                ["", "wl_0000000000000000_0000000000000000000000000000000000000000000000000000000000000000"]
            {
                let status = ask(secret).await.status.as_u16();
                let is_right = match (scope, status) {
                    (Scope::Public, 200) | (_, 401) => true,
                    // After twenty wrong tokens the client must wait.
                    (_, 429) => !secret.is_empty(),
                    _ => false,
                };
                if !is_right {
                    bypasses.push(format!("{id} without a valid token: {status}"));
                }
                asked += 1;
            }
            for Holder { role, is_limited, secret } in &holders {
                let is_allowed = match scope {
                    Scope::Public => true,
                    Scope::None => roles.contains(role) && !is_limited,
                    Scope::Target => roles.contains(role) && (!is_limited || in_scope),
                    Scope::Filtered => roles.contains(role),
                };
                let answer = ask(secret).await;
                let status = status(id, &answer);
                let passed = !matches!(status, 401 | 403 | 405 | 429);
                if passed != is_allowed || (!passed && status != 403) {
                    let limited = if *is_limited { "limited " } else { "" };
                    let target = target.flow;
                    bypasses
                        .push(format!("{id} about {target} as a {limited}{role}: {status} {}", answer.text));
                }
                if scope == Scope::Filtered && *is_limited {
                    assert!(
                        !answer.text.contains("theirs") && !answer.text.contains("foreign"),
                        "{answer:?}"
                    );
                }
                asked += 1;
            }
        }
    }
    println!("{} operations, {asked} requests, {} bypasses", operations.len(), bypasses.len());
    assert!(bypasses.is_empty(), "{bypasses:#?}");
    assert!(operations.len() >= 73 && asked >= 1_300, "{} operations, {asked} requests", operations.len());
}

#[tokio::test]
async fn a_limited_list_has_what_is_in_scope() {
    let (guarded, _, holders) = world().await;
    let viewer = &holders.iter().find(|holder| holder.role == "viewer" && holder.is_limited).unwrap().secret;
    for (path, name) in [("/v1/flows", "mine"), ("/v1/queues", "own"), ("/v1/tasks?flow=mine", "mine")] {
        let answer = guarded.get(viewer, path).await;
        assert!(answer.status == StatusCode::OK && answer.text.contains(name), "{answer:?}");
    }
    for path in [
        "/v1/tasks",
        "/v1/tasks?flow=mine&flow=theirs",
        "/v1/tasks?flow=theirs",
        "/v1/tasks/counts?status=running",
    ] {
        refused(
            &guarded.get(viewer, path).await,
            403,
            "forbidden",
            "\"viewer-of-some\" is limited to the queues own and the flows mine",
        );
    }
}

#[tokio::test]
async fn nothing_passes_inside_of_batches_and_bulk_commands() {
    let (guarded, targets, holders) = world().await;
    let of =
        |role: &str| &holders.iter().find(|holder| holder.role == role && holder.is_limited).unwrap().secret;
    let steps = json!([{ "name": "one", "run": "own.do" }]);
    let tasks = json!({ "tasks": [{ "flow": "mine" }, { "flow": "theirs" }, { "flow": "theirs@1" }, { "steps": steps }] });
    let answer = guarded.post(of("operator"), "/v1/tasks/batch", &tasks).await.json();
    let statuses: Vec<u64> =
        answer["results"].as_array().unwrap().iter().map(|it| it["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 403, 403, 403], "{answer}");
    let adhoc = guarded.post(of("operator"), "/v1/tasks", &json!({ "steps": steps })).await;
    refused(&adhoc, 403, "forbidden", "bring their steps along");
    let bulk = async |filter: Value| {
        let body = json!({ "action": "cancel", "filter": filter, "expect": 1 });
        guarded.post(of("operator"), "/v1/tasks/bulk", &body).await
    };
    refused(&bulk(json!({ "status": ["running"] })).await, 403, "forbidden", "filter by one `flow`");
    refused(&bulk(json!({ "flow": "theirs" })).await, 403, "forbidden", "the flow \"theirs\" is not in it");
    let theirs = guarded.get(&guarded.admin, "/v1/tasks?flow=theirs").await.json();
    let statuses: Vec<&str> =
        theirs["items"].as_array().unwrap().iter().map(|task| task["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["pending", "running"], "nothing was started or cancelled");
    // A worker offers a queue of its own beside one that is not.
    let both =
        guarded.post(of("worker"), "/v1/worker/exchange", &exchange(1, 1, &["own", "foreign"], 1)).await;
    refused(&both, 403, "forbidden", "the queue \"foreign\" is not in it");
    // A worker goes on in the session of another one, whose attempt is given again to a session that does not name it.
    let mut stolen = exchange(0xf1, 2, &[], 1);
    stolen.as_object_mut().unwrap().remove("modules");
    let answer = guarded.post(of("worker"), "/v1/worker/exchange", &stolen).await;
    refused(&answer, 403, "forbidden", "the queue \"foreign\" is not in it");
    assert!(!answer.text.contains(&targets[1].attempt), "{answer:?}");
}

#[tokio::test]
async fn other_spellings_of_a_request_are_the_same_request() {
    let (guarded, targets, holders) = world().await;
    let of =
        |role: &str| &holders.iter().find(|holder| holder.role == role && holder.is_limited).unwrap().secret;
    for (method, path) in [
        ("GET", "/v1/flows/their%73".to_owned()),
        ("GET", "/v1/queues/%66oreign".to_owned()),
        ("POST", "/v1/queues/foreig%6e/pause".to_owned()),
        ("GET", format!("/v1/tasks/{}", targets[1].task.replace('-', "%2d"))),
        ("GET", format!("/v1/tasks/{}", targets[1].task.to_uppercase())),
        ("GET", format!("/v1/tasks/{}", targets[1].task.replace('-', ""))),
        ("HEAD", "/v1/alarms".to_owned()),
        ("HEAD", format!("/v1/tasks/{}", targets[1].task)),
    ] {
        let answer = guarded
            .send(of("operator"), Request::builder().method(method).uri(&path).body(Body::empty()).unwrap())
            .await;
        assert!(matches!(answer.status.as_u16(), 403 | 404), "{method} {path}: {answer:?}");
        assert!(!answer.text.contains("\"steps\""), "{answer:?}");
    }
    let queue = guarded.get(&guarded.admin, "/v1/queues/foreign").await.json();
    assert_eq!(queue["paused"], false, "{queue}");
    let patch = Request::patch("/v1/tokens").body(Body::empty()).unwrap();
    let answer = guarded.send(&guarded.admin, patch).await;
    refused(&answer, 405, "method-not-allowed", "PATCH");
    assert_eq!(answer.header("allow"), Some("GET, POST"));
}

#[tokio::test]
async fn only_a_signature_takes_the_place_of_a_token() {
    let (guarded, _, holders) = world().await;
    let viewer = &holders[0].secret;
    let fire = || json_request(Method::POST, "/v1/triggers/unsigned", "{}");
    refused(&guarded.send("", fire()).await, 401, "unauthorized", "Authorization");
    refused(&guarded.send(viewer, fire()).await, 403, "forbidden", "needs the role operator");
    assert_eq!(guarded.send(&guarded.admin, fire()).await.status, StatusCode::ACCEPTED);
    // Strangers do not learn which triggers there are.
    let unknown = || json_request(Method::POST, "/v1/triggers/unknown", "{}");
    refused(&guarded.send("", unknown()).await, 401, "unauthorized", "Authorization");
    refused(&guarded.send(&guarded.admin, unknown()).await, 404, "unknown-trigger", "");
    let signed = json!({ "http": { "secret": "0123456789abcdef0123456789abcdef", "header": "x-signature" }, "flows": [{ "flow": "mine" }] });
    let signed = json_request(Method::PUT, "/v1/triggers/signed", &signed.to_string());
    let answer = guarded.send(&guarded.admin, signed).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let mut wrong = json_request(Method::POST, "/v1/triggers/signed", "{}");
    wrong.headers_mut().insert("x-signature", "sha256=00".parse().unwrap());
    refused(&guarded.send("", wrong).await, 401, "invalid-signature", "");
}
