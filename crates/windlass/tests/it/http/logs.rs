//! What attempts write, as a list and as a stream.

use axum::{body::Body, http::Request};
use serde_json::{Value, json};

use super::server::{Server, Worker};

const FLOW: &str = "
steps:
  - { name: prepare, run: m.prepare }
  - { name: resize, run: m.resize, each: files }
";

fn stream(path: &str, last: Option<u64>) -> Request<Body> {
    let request = Request::get(path).header("accept", "text/event-stream");
    let request = match last {
        Some(last) => request.header("last-event-id", last),
        None => request,
    };
    request.body(Body::empty()).unwrap()
}

/// The messages of a stream: id, event, document.
fn parse(text: &str) -> Vec<(Option<u64>, String, Value)> {
    let blocks = text.split("\n\n").filter(|block| block.contains("data: "));
    blocks
        .map(|block| {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            let data = serde_json::from_str(field("data").unwrap()).unwrap();
            (field("id").map(|id| id.parse().unwrap()), field("event").unwrap().to_owned(), data)
        })
        .collect()
}

fn texts(messages: &[(Option<u64>, String, Value)]) -> Vec<(Option<u64>, &str)> {
    messages.iter().map(|(id, _, data)| (*id, data["line"].as_str().unwrap_or("end"))).collect()
}

/// Lines while the first step runs, with its end, and of a member.
async fn write(server: &Server) {
    let mut worker = Worker::new(server, 1, &["m"]);
    let attempt = worker.take().await;
    assert_eq!(worker.report(&attempt, "running", json!({ "logs": ["one", "two"] })).await, "accepted");
    tokio::task::yield_now().await;
    assert_eq!(worker.report(&attempt, "succeeded", json!({ "logs": ["three"] })).await, "accepted");
    worker.run("succeeded", json!({ "logs": ["four"] })).await;
}

async fn start() -> (Server, String) {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({ "files": ["a"] })).await;
    (server, id)
}

#[tokio::test]
async fn a_stream_has_every_line_once_until_the_task_has_ended() {
    let (server, id) = start().await;
    let path = format!("/v1/tasks/{id}/logs");
    let (answer, ()) = tokio::join!(server.send(stream(&path, None)), write(&server));
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let messages = parse(&answer.text);
    let expected = [(Some(1), "one"), (Some(2), "two"), (Some(3), "three"), (Some(4), "four"), (None, "end")];
    assert_eq!(texts(&messages), expected);
    assert_eq!((messages[0].1.as_str(), messages[4].1.as_str()), ("step.log", "task.ended"));
    assert_eq!(messages[4].2, json!({ "status": "succeeded" }));
    assert_eq!((&messages[3].2["step"], &messages[3].2["member"]), (&json!("resize"), &json!(0)));

    // The same as a list, and again from the line that was seen last.
    let list = server.get(&path).await.json();
    let documents: Vec<&Value> = messages[..4].iter().map(|(.., line)| line).collect();
    assert_eq!(list["items"].as_array().unwrap().iter().collect::<Vec<_>>(), documents);
    let rest = parse(&server.send(stream(&path, Some(3))).await.text);
    assert_eq!(texts(&rest), expected[3..]);
    assert!(server.app.engine.feed().is_idle(), "nobody is left watching");
    assert_eq!(server.send(stream("/v1/tasks/nothing/logs", None)).await.status, 404);
}

#[tokio::test]
async fn lines_of_one_step_or_member_are_asked_for_and_what_is_not_there_is_said() {
    let (server, id) = start().await;
    write(&server).await;
    let path = |step: &str| format!("/v1/tasks/{id}/logs?step={step}");
    let list = server.get(&path("resize[0]")).await.json();
    let lines: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|line| &line["line"]).collect();
    assert_eq!(lines, ["four"]);
    assert_eq!(server.get(&path("resize")).await.json()["items"], list["items"]);
    let streamed = parse(&server.send(stream(&path("resize"), None)).await.text);
    assert_eq!(texts(&streamed), [(Some(4), "four"), (None, "end")]);
    for (step, said) in
        [("nosuch", "resize"), ("resize[9]", "it has 1, counted from 0"), ("resize[x]", "it has 1")]
    {
        let answer = server.get(&path(step)).await;
        assert_eq!(answer.status, 404, "{step}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(said), "{answer:?}");
    }
    assert_eq!(server.send(stream(&path("nosuch"), None)).await.status, 404);
}

#[tokio::test]
async fn the_stream_of_events_has_lines_where_they_are_asked_for() {
    let (server, id) = start().await;
    let path = |query: &str| format!("/v1/tasks/{id}/events{query}");
    let (with, without, ()) = tokio::join!(
        server.send(stream(&path("?logs=true"), None)),
        server.send(stream(&path(""), None)),
        write(&server)
    );
    let lines = |answer: &super::server::Answer| -> Vec<(Option<u64>, String)> {
        let messages = parse(&answer.text).into_iter().filter(|(_, kind, _)| kind == "step.log");
        messages.map(|(id, _, event)| (id, event["data"]["line"].as_str().unwrap().to_owned())).collect()
    };
    let expected = ["one", "two", "three", "four"].map(|line| (None, line.to_owned()));
    assert_eq!(lines(&with), expected);
    assert_eq!(lines(&without), []);
    let kinds: Vec<String> = parse(&with.text).into_iter().map(|(_, kind, _)| kind).collect();
    let place = |kind: &str| kinds.iter().position(|found| found == kind).unwrap();
    assert!(place("step.log") < place("step.succeeded"), "what an attempt wrote comes before its end");
    assert_eq!(server.get(&path("?logs=perhaps")).await.status, 400);
}
