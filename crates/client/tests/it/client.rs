//! The control client: refusals, servers that are not there, and streams of events that live through a restart.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use windlass_client::{
    Client, Error, TaskFilter,
    api::{Problem, SubmitTask, TaskStatus},
};

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn task(id: &str, status: &str) -> Value {
    json!({
        "id": id, "flow": "f", "version": 1, "status": status, "message": null, "cursor": 0, "params": {},
        "labels": {}, "priority": 0, "created_at": "2026-01-01T00:00:00Z", "started_at": null, "ended_at": null,
        "steps": [],
    })
}

fn event(n: u64, kind: &str) -> String {
    let data = json!({"n": n, "task": "t", "at": "2026-01-01T00:00:00Z", "kind": kind, "data": {}});
    format!("id: {n}\nevent: {kind}\ndata: {data}\n\n")
}

#[tokio::test]
async fn a_submit_carries_who_asks_and_how_long_it_waits() {
    async fn submit(headers: HeaderMap, Json(body): Json<Value>) -> Response {
        let said = |name| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let said =
            [said("authorization"), said("windlass-actor"), said("prefer"), body.to_string()].join("|");
        let mut answer = task("t", "pending");
        answer["message"] = said.into();
        (StatusCode::ACCEPTED, Json(answer)).into_response()
    }
    let address = serve(Router::new().route("/v1/tasks", post(submit))).await;
    let client = Client::new(&address.to_string()).unwrap().with_token("secret\n").with_actor("ann");
    let submit: SubmitTask =
        serde_json::from_value(json!({"flow": "f", "params": {"z": 1, "a": 2.50}})).unwrap();
    let task = client.submit_and_wait(&submit, Duration::from_millis(1500)).await.unwrap();
    assert_eq!(task.message.unwrap(), r#"Bearer secret|ann|wait=2|{"flow":"f","params":{"z":1,"a":2.5}}"#);
    assert_eq!(task.status, TaskStatus::Pending);
}

#[tokio::test]
async fn a_refusal_is_the_problem_and_anything_else_is_malformed() {
    async fn refuse(Path(id): Path<String>) -> Response {
        match id.as_str() {
            "plain" => (StatusCode::OK, "hello").into_response(),
            id => {
                let problem =
                    Problem::new(404, "task-unknown", "Unknown task", format!("there is no task {id}"));
                (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "application/problem+json")], Json(problem))
                    .into_response()
            }
        }
    }
    let address = serve(Router::new().route("/v1/tasks/{id}", get(refuse))).await;
    let client = Client::new(&address.to_string()).unwrap();
    let Err(Error::Refused(problem)) = client.task("a/b").await else { panic!("not refused") };
    assert_eq!((problem.name(), problem.detail.as_str()), ("task-unknown", "there is no task a/b"));
    assert!(matches!(client.wait("x").await, Err(Error::Refused(_))));
    let Err(Error::Malformed { call, .. }) = client.task("plain").await else { panic!("not malformed") };
    assert_eq!(call, "GET /v1/tasks/plain");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(&address.to_string()).unwrap();
    let error = client.wait("t").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("http://{address}")));
}

#[tokio::test]
async fn a_list_is_asked_for_with_its_filter() {
    async fn list(RawQuery(query): RawQuery) -> Json<Value> {
        Json(json!({"items": [], "next": query}))
    }
    let address = serve(Router::new().route("/v1/tasks", get(list))).await;
    let client = Client::new(&address.to_string()).unwrap();
    let filter = TaskFilter {
        flow: Some("a&b".to_owned()),
        labels: vec![("team".to_owned(), "x y".to_owned())],
        since: Some("15m".to_owned()),
        ..TaskFilter::default()
    };
    let list = client.tasks(&filter).await.unwrap();
    assert_eq!(list.next.as_deref(), Some("flow=a%26b&label=team%3Ax+y&since=15m"));
}

/// Answers the first stream with two events and the start of a third, the second one from where the first ended.
async fn broken_stream(State(opened): State<Arc<AtomicUsize>>, headers: HeaderMap) -> Response {
    let after: u64 = headers["last-event-id"].to_str().unwrap().parse().unwrap();
    let body = match opened.fetch_add(1, Ordering::SeqCst) {
        0 => format!(
            ": hello\n\n{}{}{}",
            event(1, "task.accepted"),
            event(2, "step.ready"),
            "id: 3\ndata: {\"n\""
        ),
        1 => String::new(),
        _ => format!(
            "{}{}{}",
            event(after + 1, "step.succeeded"),
            event(after + 2, "task.ended"),
            event(99, "never")
        ),
    };
    ([(CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
}

#[tokio::test]
async fn a_stream_of_events_goes_on_where_it_was_lost_and_ends_with_the_task() {
    let opened = Arc::new(AtomicUsize::new(0));
    let app = Router::new().route("/v1/tasks/{id}/events", get(broken_stream)).with_state(opened.clone());
    let client = Client::new(&serve(app).await.to_string()).unwrap();
    let events = client.follow_events("t", 0).await.unwrap();
    let events: Vec<_> =
        events.map(|event| event.unwrap()).map(|event| (event.n.unwrap(), event.kind)).collect().await;
    let expected = [(1, "task.accepted"), (2, "step.ready"), (3, "step.succeeded"), (4, "task.ended")];
    assert_eq!(events, expected.map(|(n, kind)| (n, kind.to_owned())));
    assert_eq!(opened.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn waiting_goes_by_events_and_also_ends_when_a_person_is_needed() {
    async fn look(State(looks): State<Arc<AtomicUsize>>) -> Json<Value> {
        let status = if looks.fetch_add(1, Ordering::SeqCst) == 0 { "running" } else { "stuck" };
        Json(task("t", status))
    }
    async fn events() -> Response {
        let first = event(1, "task.stuck");
        let stream =
            futures_util::stream::iter([Ok::<_, Infallible>(first)]).chain(futures_util::stream::pending());
        ([(CONTENT_TYPE, "text/event-stream")], axum::body::Body::from_stream(stream)).into_response()
    }
    let looks = Arc::new(AtomicUsize::new(0));
    let app = Router::new()
        .route("/v1/tasks/{id}", get(look))
        .route("/v1/tasks/{id}/events", get(events))
        .with_state(looks.clone());
    let client = Client::new(&serve(app).await.to_string()).unwrap();
    let waited =
        tokio::time::timeout(Duration::from_secs(5), client.wait("t")).await.expect("woken by the event");
    assert_eq!(waited.unwrap().status, TaskStatus::Stuck);
    assert_eq!(looks.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn waiting_works_without_a_stream_of_events_and_while_the_server_is_away() {
    async fn look(State(looks): State<Arc<AtomicUsize>>) -> Response {
        match looks.fetch_add(1, Ordering::SeqCst) {
            0 => Json(task("t", "running")).into_response(),
            1 | 2 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            _ => Json(task("t", "succeeded")).into_response(),
        }
    }
    let looks = Arc::new(AtomicUsize::new(0));
    let app = Router::new().route("/v1/tasks/{id}", get(look)).with_state(looks.clone());
    let client = Client::new(&serve(app).await.to_string()).unwrap();
    assert_eq!(client.wait("t").await.unwrap().status, TaskStatus::Succeeded);
    assert_eq!(looks.load(Ordering::SeqCst), 4);
}
