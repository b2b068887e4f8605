//! What happened to a task, as a list and as a stream.

use axum::{body::Body, http::Request};
use serde_json::{Value, json};

use super::server::{Server, Worker};

const FLOW: &str = "steps: [{ name: only, run: m.c, retry: { max: 1, backoff: none } }]";

const KINDS: [&str; 9] = [
    "task.accepted",
    "step.ready",
    "step.started",
    "step.retrying",
    "step.ready",
    "step.started",
    "step.succeeded",
    "task.ended",
    "",
];

fn stream(id: &str, last: Option<u64>) -> Request<Body> {
    let request = Request::get(format!("/v1/tasks/{id}/events")).header("accept", "text/event-stream");
    let request = match last {
        Some(last) => request.header("last-event-id", last),
        None => request,
    };
    request.body(Body::empty()).unwrap()
}

/// The events of a stream: number, kind, document.
fn parse(text: &str) -> Vec<(Option<u64>, String, Value)> {
    let blocks = text.split("\n\n").filter(|block| block.contains("data: "));
    blocks
        .map(|block| {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            let data: Value = serde_json::from_str(field("data").unwrap()).unwrap();
            assert_eq!(data["kind"], field("event").unwrap());
            let n = field("id").map(|id| id.parse().unwrap());
            assert_eq!(data["n"].as_u64(), n);
            (n, field("event").unwrap().to_owned(), data)
        })
        .collect()
}

async fn finish(server: &Server) {
    let mut worker = Worker::new(server, 1, &["m"]);
    worker.run("failed", json!({ "error": { "message": "no" } })).await;
    let attempt = worker.take().await;
    worker.report(&attempt, "running", json!({ "progress": { "value": 0.5 } })).await;
    worker.report(&attempt, "succeeded", json!({})).await;
}

#[tokio::test]
async fn a_stream_goes_on_until_the_end_and_says_what_is_live() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    let (answer, ()) = tokio::join!(server.send(stream(&id, None)), finish(&server));
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let events = parse(&answer.text);
    let history: Vec<(u64, &str)> =
        events.iter().filter_map(|(n, kind, _)| n.map(|n| (n, kind.as_str()))).collect();
    let expected: Vec<(u64, &str)> = (1..).zip(KINDS).filter(|(_, kind)| !kind.is_empty()).collect();
    assert_eq!(history, expected);
    let live: Vec<(&str, &Value)> = events
        .iter()
        .filter(|(n, ..)| n.is_none())
        .map(|(_, kind, event)| (kind.as_str(), &event["data"]))
        .collect();
    let started = json!({ "worker": "worker-1" });
    let progress = json!({ "value": 0.5 });
    assert_eq!(live, [("step.started", &started), ("step.started", &started), ("step.progress", &progress)]);

    // The same as a list.
    let list = server.get(&format!("/v1/tasks/{id}/events")).await.json();
    let documents: Vec<&Value> =
        events.iter().filter(|(n, ..)| n.is_some()).map(|(.., event)| event).collect();
    assert_eq!(list["items"].as_array().unwrap().iter().collect::<Vec<_>>(), documents);
    assert_eq!(list["next"], Value::Null);
    assert_eq!(documents[3]["data"], json!({ "message": "no", "code": 1, "until": documents[3]["at"] }));
}

#[tokio::test]
async fn a_stream_goes_on_after_the_last_event_that_was_seen() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    finish(&server).await;
    let numbers = async |last| -> Vec<u64> {
        parse(&server.send(stream(&id, last)).await.text).into_iter().filter_map(|(n, ..)| n).collect()
    };
    assert_eq!(numbers(None).await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(numbers(Some(6)).await, [7, 8]);
    assert_eq!(numbers(Some(8)).await, Vec::<u64>::new(), "an ended task has nothing more");
    assert_eq!(numbers(Some(80)).await, Vec::<u64>::new());
}

#[tokio::test]
async fn lists_have_pages() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    finish(&server).await;
    let page = async |query: &str| server.get(&format!("/v1/tasks/{id}/events?{query}")).await.json();
    let first = page("limit=5").await;
    assert_eq!((first["items"].as_array().unwrap().len(), &first["next"]), (5, &json!("5")));
    let rest = page("limit=5&cursor=5").await;
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (3, &json!(null)));
    assert_eq!(page("after=7").await["items"][0]["kind"], "task.ended");
}

#[tokio::test]
async fn a_stream_ends_with_the_server() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    let (answer, ()) = tokio::join!(server.send(stream(&id, None)), async {
        tokio::task::yield_now().await;
        server.app.shutdown.begin();
    });
    assert!(parse(&answer.text).len() <= 2);
}

#[tokio::test]
async fn nobody_is_left_watching_when_streams_and_waits_are_over() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let is_idle = || server.app.engine.feed().is_idle();
    assert_eq!(server.send(stream("00000000-0000-7000-8000-000000000000", None)).await.status, 404);
    assert!(is_idle(), "after a stream of a task that is not there");

    let submit = Request::post("/v1/tasks").header("content-type", "application/json");
    let submit = submit.header("prefer", "wait=1").body(Body::from(r#"{"flow":"f"}"#)).unwrap();
    let id = server.send(submit).await.json()["id"].as_str().unwrap().to_owned();
    assert!(is_idle(), "after a wait that came to nothing");

    tokio::join!(server.send(stream(&id, None)), finish(&server));
    assert!(is_idle(), "after a stream that went on to the end");
    server.send(stream(&id, None)).await;
    assert!(is_idle(), "after a stream of a task that had ended");
}
