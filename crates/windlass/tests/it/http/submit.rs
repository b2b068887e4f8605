//! Taking tasks in: the answer, keys, batches, waiting.

use axum::{
    body::Body,
    http::{Method, StatusCode},
};
use serde_json::{Value, json};

use super::server::{Server, Worker, json_request};

const FLOW: &str = "steps: [{ name: only, run: m.c }]";

async fn server() -> Server {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    server
}

fn with(body: &Value, headers: &[(&'static str, &str)]) -> axum::http::Request<Body> {
    let mut request = json_request(Method::POST, "/v1/tasks", &body.to_string());
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn a_task_is_accepted_with_its_place() {
    let server = server().await;
    let answer = server.post("/v1/tasks", &json!({ "flow": "f" })).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert_eq!(answer.header("retry-after"), Some("1"));
    let location = answer.header("location").unwrap();
    assert_eq!(location, format!("/v1/tasks/{}", answer.json()["id"].as_str().unwrap()));
    assert_eq!(server.get(location).await.json(), answer.json());
}

#[tokio::test]
async fn a_repeated_key_is_the_same_task() {
    let server = server().await;
    let body = json!({ "flow": "f", "params": { "a": 1 }, "key": "order-1" });
    let first = server.post("/v1/tasks", &body).await.json();
    let again = server.post("/v1/tasks", &body).await;
    let mut expected = first.clone();
    expected["existing"] = json!("idempotency_key");
    assert_eq!((again.status, again.json()), (StatusCode::OK, expected));
    assert_eq!(again.header("windlass-existing"), Some("idempotency_key"));
    assert_eq!(again.header("location"), Some(&*format!("/v1/tasks/{}", first["id"].as_str().unwrap())));
    // The header is the same thing as the field.
    let mut without = body.clone();
    without.as_object_mut().unwrap().remove("key");
    let by_header = server.send(with(&without, &[("idempotency-key", "order-1")])).await;
    assert_eq!(by_header.json()["id"], first["id"]);
    let spaced = r#"{ "params": { "b": [1, 2], "a": 1 }, "key": "spaced", "flow": "f" }"#;
    let compact = r#"{"flow":"f","key":"spaced","params":{"a":1,"b":[1,2]}}"#;
    let send = async |text: &str| server.send(json_request(Method::POST, "/v1/tasks", text)).await;
    let (first_spaced, then_compact) = (send(spaced).await, send(compact).await);
    assert_eq!((first_spaced.status, then_compact.status), (StatusCode::ACCEPTED, StatusCode::OK));
    assert_eq!(first_spaced.json()["id"], then_compact.json()["id"]);
    let mut changed = body.clone();
    changed["params"]["a"] = json!(2);
    assert_eq!(server.post("/v1/tasks", &changed).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let mut other = body;
    other["key"] = json!("order-2");
    assert_ne!(server.post("/v1/tasks", &other).await.json()["id"], first["id"]);
    assert_eq!(server.get("/v1/tasks").await.json()["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn each_task_of_a_batch_is_for_itself() {
    let server = server().await;
    let body = json!({ "tasks": [
        { "flow": "f", "key": "a" },
        { "flow": "missing" },
        7,
        { "flow": "f", "params": [] },
        { "flow": "f", "key": "a" },
        { "flow": "f", "key": "a", "priority": 3 },
    ] });
    let answer = server.post("/v1/tasks/batch", &body).await;
    assert_eq!(answer.status, StatusCode::OK);
    let results = answer.json()["results"].as_array().unwrap().clone();
    let summary: Vec<(u64, Option<&str>)> = results
        .iter()
        .map(|result| {
            let problem = result["problem"]["type"].as_str();
            (result["status"].as_u64().unwrap(), problem.map(|problem| problem.rsplit('/').next().unwrap()))
        })
        .collect();
    assert_eq!(
        summary,
        [
            (202, None),
            (404, Some("unknown-flow")),
            (400, Some("malformed")),
            (400, Some("malformed")),
            (200, None),
            (422, Some("idempotency-key-reused")),
        ]
    );
    assert_eq!(results[0]["id"], results[4]["id"]);
    assert_eq!((&results[0]["existing"], &results[4]["existing"]), (&Value::Null, &json!("idempotency_key")));
    assert_eq!(server.get("/v1/tasks").await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        server.post("/v1/tasks/batch", &json!({ "tasks": [] })).await.json(),
        json!({ "results": [] })
    );
}

#[tokio::test]
async fn waiting_is_answered_with_the_end() {
    let server = server().await;
    let submit = server.send(with(&json!({ "flow": "f" }), &[("prefer", "wait=20")]));
    let work = async {
        let mut worker = Worker::new(&server, 1, &["m"]);
        loop {
            // The submit is under way beside this.
            tokio::task::yield_now().await;
            let answer = worker.poll().await;
            if let Some(attempt) = answer["attempts"].get(0) {
                break worker.report(attempt, "succeeded", json!({ "result": { "b": 2 } })).await;
            }
        }
    };
    let (answer, reported) = tokio::join!(submit, work);
    assert_eq!(reported, "accepted");
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("preference-applied"), Some("wait=20"));
    assert_eq!(answer.header("retry-after"), None);
    assert_eq!(
        (&answer.json()["status"], &answer.json()["result"]),
        (&json!("succeeded"), &json!({ "b": 2 }))
    );
}

#[tokio::test]
async fn waiting_ends_with_its_time_and_with_the_server() {
    let server = server().await;
    let answer = server.send(with(&json!({ "flow": "f" }), &[("prefer", "wait=1")])).await;
    assert_eq!((answer.status, &answer.json()["status"]), (StatusCode::ACCEPTED, &json!("pending")));
    let body = json!({ "flow": "f" });
    let waiting = server.send(with(&body, &[("prefer", "wait=60")]));
    let stop = async {
        while server.get("/v1/tasks").await.json()["items"].as_array().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        server.app.shutdown.begin();
    };
    let (answer, ()) = tokio::join!(waiting, stop);
    assert_eq!(answer.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_trace_goes_to_the_worker_and_a_malformed_one_is_dropped() {
    let server = server().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut worker = Worker::new(&server, 1, &["m"]);
    for (sent, received) in [(trace, json!(trace)), ("00-nonsense", Value::Null)] {
        server.send(with(&json!({ "flow": "f" }), &[("traceparent", sent)])).await;
        let attempt = worker.run("succeeded", json!({})).await;
        assert_eq!(attempt["traceparent"], received);
    }
}

#[tokio::test]
async fn pages_of_tasks_go_from_the_newest_to_the_oldest() {
    let server = server().await;
    server.apply("g", FLOW).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let flow = if n == 2 { "g" } else { "f" };
        let labels = json!({ "n": n.to_string(), "parity": (n % 2).to_string() });
        let answer = server.post("/v1/tasks", &json!({ "flow": flow, "labels": labels })).await.json();
        ids.insert(0, answer["id"].as_str().unwrap().to_owned());
        server.pass(1000).await;
    }
    let list = async |query: &str| -> (Vec<String>, Option<String>) {
        let answer = server.get(&format!("/v1/tasks?{query}")).await.json();
        let items = answer["items"].as_array().unwrap().iter();
        let found =
            items.inspect(|item| assert!(item.get("steps").is_none() && item.get("result").is_none()));
        (
            found.map(|item| item["id"].as_str().unwrap().to_owned()).collect(),
            answer["next"].as_str().map(str::to_owned),
        )
    };
    let (first, next) = list("limit=2").await;
    let (second, next) = list(&format!("limit=2&cursor={}", next.unwrap())).await;
    let (third, next) = list(&format!("limit=2&cursor={}", next.unwrap())).await;
    assert_eq!([first, second, third].concat(), ids);
    assert_eq!(next, None);
    assert_eq!(list("flow=g").await.0, [ids[2].clone()]);
    assert_eq!(list("label=parity:1").await.0, [ids[1].clone(), ids[3].clone()]);
    assert_eq!(list("label=parity:1&label=n:3").await.0, [ids[1].clone()]);
    assert_eq!(list("status=succeeded,failed").await.0, Vec::<String>::new());
    assert_eq!(list("status=succeeded&status=pending").await.0, ids);
    assert_eq!(list("since=2s").await.0, ids[..2]);
    assert_eq!(list("until=2s").await.0, ids[2..]);
}

#[tokio::test]
async fn a_page_ends_before_it_is_too_large() {
    let server = server().await;
    let text = "x".repeat(1_000_000);
    for _ in 0..10 {
        server.submit("f", json!({ "text": text })).await;
    }
    let page = server.get("/v1/tasks?limit=1000").await;
    assert!(page.text.len() < 10 << 20, "{} bytes", page.text.len());
    let page = page.json();
    assert_eq!(page["items"].as_array().unwrap().len(), 9, "8 MiB, and the task that goes beyond them");
    let next = page["next"].as_str().unwrap();
    let rest = server.get(&format!("/v1/tasks?cursor={next}")).await.json();
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (1, &json!(null)));
    assert!(rest["items"][0]["id"].as_str() < page["items"][8]["id"].as_str());
}

#[tokio::test]
async fn a_field_that_cannot_be_read_is_named() {
    let server = server().await;
    for (body, said) in [
        (
            json!({ "flow": "f", "at": "tomorrow" }),
            "`at`: invalid time \"tomorrow\": write for example 2030-01-31T08:00:00Z",
        ),
        (
            json!({ "flow": "f", "priority": "high" }),
            "`priority`: invalid type: string \"high\", expected i64",
        ),
        (
            json!({ "flow": "f", "labels": { "team": 3 } }),
            "`labels.team`: invalid type: integer `3`, expected a string",
        ),
    ] {
        let answer = server.post("/v1/tasks", &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(said), "{detail}");
    }
}

#[tokio::test]
async fn a_task_is_turned_around_when_its_deadline_passes() {
    let server = Server::start().await;
    server.apply("f", "steps: [{ name: only, run: m.c, rollback: m.undo }]").await;
    for (deadline, detail) in [("0s", "a `deadline` of 0"), ("367d", "366 days"), ("soon", "deadline")] {
        let answer = server.post("/v1/tasks", &json!({ "flow": "f", "deadline": deadline })).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{answer:?}");
    }
    let task = server.post("/v1/tasks", &json!({ "flow": "f", "deadline": "10s" })).await.json();
    assert_eq!(task["deadline_at"], "2030-03-17T17:46:51Z");
    let id = task["id"].as_str().unwrap();
    server.pass(9_500).await;
    assert_eq!(server.task(id).await["status"], "pending");
    server.pass(1_000).await;
    let task = server.task(id).await;
    assert_eq!((&task["status"], &task["message"]), (&json!("failed"), &json!("the task's deadline passed")));
}
