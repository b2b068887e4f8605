//! What bad input gets: each a clear answer, and nothing changed.

use axum::{
    body::Body,
    http::{Method, Request},
};
use serde_json::{Value, json};
use windlass_api::Problem;

use super::server::{Answer, Server, Worker, json_request};

const FLOW: &str =
    "steps:\n  - { name: first, run: one.do, rollback: one.undo }\n  - { name: second, run: two.do }\n";

/// A request, and what it is refused with.
struct Case {
    what: &'static str,
    request: Request<Body>,
    status: u16,
    problem: &'static str,
    detail: &'static str,
}

fn case(
    what: &'static str,
    request: Request<Body>,
    status: u16,
    problem: &'static str,
    detail: &'static str,
) -> Case {
    Case { what, request, status, problem, detail }
}

fn submit(body: &str) -> Request<Body> {
    json_request(Method::POST, "/v1/tasks", body)
}

fn submit_with(header: &str, value: &[u8]) -> Request<Body> {
    let mut request = submit(r#"{"flow":"f","key":"k"}"#);
    request.headers_mut().insert(
        axum::http::HeaderName::try_from(header).unwrap(),
        axum::http::HeaderValue::from_bytes(value).unwrap(),
    );
    request
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn yaml(path: &str, body: &str) -> Request<Body> {
    let method = if path.ends_with("check") { Method::POST } else { Method::PUT };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/yaml");
    request.body(Body::from(body.to_owned())).unwrap()
}

fn exchange(changes: Value) -> Request<Body> {
    let mut body = json!({ "protocol": 1, "session": "00000000-0000-4000-8000-000000000001", "seq": 1 });
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    json_request(Method::POST, "/v1/worker/exchange", &body.to_string())
}

/// A body whose length is not given beforehand.
fn endless(path: &str) -> Request<Body> {
    let piece = || Ok::<_, std::io::Error>(axum::body::Bytes::from_static(&[b' '; 1 << 16]));
    let body = Body::from_stream(futures_util::stream::repeat_with(piece));
    Request::post(path).header("content-type", "application/json").body(body).unwrap()
}

fn of_submits() -> Vec<Case> {
    let labels: Value =
        (0..17).map(|n| (format!("l{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let nested = format!(r#"{{"flow":"f","params":{}{{}}{}}}"#, r#"{"a":"#.repeat(64), "}".repeat(64));
    let large = format!(r#"{{"flow":"f","params":{{"a":"{}"}}}}"#, "x".repeat(1 << 20));
    let huge = format!(r#"{{"flow":"f","params":{{"a":"{}"}}}}"#, "x".repeat(2 << 20));
    let mut form = submit(r#"{"flow":"f"}"#);
    form.headers_mut().insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
    let not_utf8 = Request::post("/v1/tasks").body(Body::from(vec![b'{', 0xff])).unwrap();
    vec![
        case("unknown flow", submit(r#"{"flow":"g"}"#), 404, "unknown-flow", "PUT /v1/flows/NAME"),
        case(
            "unknown version",
            submit(r#"{"flow":"f@7"}"#),
            404,
            "unknown-flow",
            "no version 7: it has 1 only",
        ),
        case("no version", submit(r#"{"flow":"f@x"}"#), 400, "malformed", "write for example f@3"),
        case("a path for a flow", submit(r#"{"flow":"../f"}"#), 400, "malformed", "invalid name"),
        case("half a document", submit("{\n  \"flow\": "), 400, "malformed", "(line 2, column 10)"),
        case("no document", submit(""), 400, "malformed", "send a JSON object"),
        case("not UTF-8", not_utf8, 400, "malformed", "not UTF-8 from byte 1"),
        case("an array", submit("[]"), 400, "malformed", "it is an array, and must be an object"),
        case("no flow", submit("{}"), 400, "malformed", "needs `flow`"),
        case(
            "an unknown field",
            submit(r#"{"flow":"f","parms":{}}"#),
            400,
            "malformed",
            "unknown field `parms`",
        ),
        case(
            "a field twice",
            submit(r#"{"flow":"f","flow":"f"}"#),
            400,
            "malformed",
            "duplicate field `flow`",
        ),
        case(
            "params an array",
            submit(r#"{"flow":"f","params":[1]}"#),
            400,
            "malformed",
            "`params`: it is an array",
        ),
        case(
            "params a number",
            submit(r#"{"flow":"f","params":7}"#),
            400,
            "malformed",
            "`params`: it is a number",
        ),
        case("params too deep", submit(&nested), 400, "malformed", "nests deeper than 64"),
        case("params too large", submit(&large), 413, "too-large", "may have 1 MiB"),
        case("body too large", submit(&huge), 413, "too-large", "larger than 2 MiB"),
        case("body without end", endless("/v1/tasks"), 413, "too-large", "larger than 2 MiB"),
        case("priority", submit(r#"{"flow":"f","priority":11}"#), 400, "malformed", "from -10 to 10"),
        case("time", submit(r#"{"flow":"f","at":"soon"}"#), 400, "malformed", "line 1"),
        case(
            "labels",
            submit(&json!({ "flow": "f", "labels": labels }).to_string()),
            400,
            "malformed",
            "17 labels, and may be 16",
        ),
        case(
            "a long label",
            submit(&json!({ "flow": "f", "labels": { "a": "x".repeat(129) } }).to_string()),
            400,
            "malformed",
            "128 bytes each",
        ),
        case("an empty key", submit(r#"{"flow":"f","key":""}"#), 400, "malformed", "key is empty"),
        case("two keys", submit_with("idempotency-key", b"other"), 400, "malformed", "the same thing"),
        case(
            "a key that is used",
            submit(r#"{"flow":"f","key":"used","priority":1}"#),
            422,
            "idempotency-key-reused",
            "use a new key",
        ),
        case("an actor", submit_with("windlass-actor", b"\xff"), 400, "malformed", "Windlass-Actor"),
        case("a form", form, 415, "unsupported-media-type", "Content-Type: application/json"),
        case(
            "a batch with a key",
            {
                let mut request = json_request(Method::POST, "/v1/tasks/batch", r#"{"tasks":[]}"#);
                request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
                request
            },
            400,
            "malformed",
            "give each task its `key`",
        ),
        case(
            "a large batch",
            json_request(Method::POST, "/v1/tasks/batch", &json!({ "tasks": vec![1; 10_001] }).to_string()),
            413,
            "too-large",
            "may have 10000",
        ),
        case("a batch without end", endless("/v1/tasks/batch"), 413, "too-large", "larger than 8 MiB"),
    ]
}

fn of_tasks(ended: &str, running: &str) -> Vec<Case> {
    let unknown = "00000000-0000-7000-8000-000000000000";
    let verb =
        |id: &str, verb: &str| Request::post(format!("/v1/tasks/{id}/{verb}")).body(Body::empty()).unwrap();
    let resolve = |id: &str, step: &str, body: &str| {
        json_request(Method::POST, &format!("/v1/tasks/{id}/steps/{step}/resolve"), body)
    };
    vec![
        case("unknown task", get(&format!("/v1/tasks/{unknown}")), 404, "unknown-task", unknown),
        case("no id", get("/v1/tasks/7"), 404, "unknown-task", "an id is a UUID"),
        case("a path for an id", get("/v1/tasks/..%2f..%2fetc"), 404, "unknown-task", "an id is a UUID"),
        case("an id that is not text", get("/v1/tasks/%ff"), 400, "malformed", "path"),
        case(
            "unknown view",
            get(&format!("/v1/tasks/{ended}?view=modern")),
            400,
            "malformed",
            "can be classic",
        ),
        case("unknown status", get("/v1/tasks?status=done"), 400, "malformed", "succeeded"),
        case("unknown filter", get("/v1/tasks?state=failed"), 400, "malformed", "status, flow"),
        case("limit", get("/v1/tasks?limit=1001"), 400, "malformed", "from 1 to 1000"),
        case("cursor", get("/v1/tasks?cursor=7"), 400, "malformed", "of the page before, unchanged"),
        case("cursor of flows", get("/v1/flows?cursor=%2Fx"), 400, "malformed", "\"cursor\""),
        case("label", get("/v1/tasks?label=x"), 400, "malformed", "name:value"),
        case("since", get("/v1/tasks?since=yesterday"), 400, "malformed", "15m"),
        case("events of no task", get(&format!("/v1/tasks/{unknown}/events")), 404, "unknown-task", unknown),
        case("logs of no task", get(&format!("/v1/tasks/{unknown}/logs")), 404, "unknown-task", unknown),
        case("why of no task", get(&format!("/v1/tasks/{unknown}/why")), 404, "unknown-task", unknown),
        case("cancel no task", verb(unknown, "cancel"), 404, "unknown-task", unknown),
        case("cancel an ended task", verb(ended, "cancel"), 409, "conflict", "has ended"),
        case("pause an ended task", verb(ended, "pause"), 409, "conflict", "has ended"),
        case(
            "resolve no step",
            resolve(running, "third", r#"{"action":"skip"}"#),
            404,
            "unknown-step",
            "it has first, second",
        ),
        case(
            "resolve for nothing",
            resolve(running, "first", r#"{"action":"skip"}"#),
            409,
            "conflict",
            "does not wait for a decision",
        ),
        case("resolve how", resolve(running, "first", r#"{"action":"fix"}"#), 400, "malformed", "retry"),
        case(
            "resolve with stray params",
            resolve(running, "first", r#"{"action":"skip","params":{}}"#),
            400,
            "malformed",
            "goes with the actions `retry`",
        ),
        case(
            "resolve with no object",
            resolve(running, "first", r#"{"action":"done","params":[]}"#),
            400,
            "malformed",
            "an array",
        ),
    ]
}

fn of_flows() -> Vec<Case> {
    let twice = "steps:\n  - { name: a, run: one.do }\n  - { name: a, run: one.do }\n";
    let two = "flow: a\nsteps: [{ name: a, run: m.c }]\n---\nflow: b\nsteps: [{ name: a, run: m.c }]\n";
    let mut text = yaml("/v1/flows/f", FLOW);
    text.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    vec![
        case("a step twice", yaml("/v1/flows/f", twice), 400, "invalid-flow", "need different names"),
        case(
            "an unknown key",
            yaml("/v1/flows/f", "steps:\n  - { name: a, run: m.c, retrys: 3 }\n"),
            400,
            "invalid-flow",
            "did you mean",
        ),
        case(
            "a negative timeout",
            yaml("/v1/flows/f", "steps:\n  - { name: a, run: m.c, timeout: -5m }\n"),
            400,
            "invalid-flow",
            "negative",
        ),
        case(
            "a command outside",
            yaml("/v1/flows/f", "steps:\n  - { name: a, run: m.../../sh }\n"),
            400,
            "invalid-flow",
            "is a path",
        ),
        case("no YAML", yaml("/v1/flows/f", "steps: [\n"), 400, "invalid-flow", ""),
        case(
            "another name",
            yaml("/v1/flows/f", "flow: g\nsteps: [{ name: a, run: m.c }]\n"),
            400,
            "malformed",
            "make them agree",
        ),
        case("two flows", yaml("/v1/flows/a", two), 400, "malformed", "2 flows"),
        case(
            "a flow too large",
            yaml("/v1/flows/f", &"#".repeat((1 << 20) + 1)),
            413,
            "too-large",
            "larger than 1 MiB",
        ),
        case("a name that is none", yaml("/v1/flows/..%2fx", FLOW), 400, "malformed", "invalid name"),
        case("plain text", text, 415, "unsupported-media-type", "application/yaml"),
        case("checked without a name", yaml("/v1/flows/check", FLOW), 400, "invalid-flow", "no name"),
        case("unknown flow", get("/v1/flows/g"), 404, "unknown-flow", "there is no flow g"),
        case(
            "unknown version",
            get("/v1/flows/f?version=9"),
            404,
            "unknown-flow",
            "no version 9: it has 1 only",
        ),
        case("no version", get("/v1/flows/f?version=new"), 400, "malformed", "whole number"),
    ]
}

fn of_workers() -> Vec<Case> {
    let module = |name: &str| json!({ "modules": [{ "name": name, "free": 1 }] });
    vec![
        case("protocol", exchange(json!({ "protocol": 2 })), 400, "malformed", "speaks 1 only"),
        case("session", exchange(json!({ "session": "me" })), 400, "malformed", "UUID"),
        case("seq", exchange(json!({ "seq": 0 })), 400, "malformed", "up from 1"),
        case("wait", exchange(json!({ "wait_ms": 30_001 })), 400, "malformed", "may be 30000"),
        case("lease", exchange(json!({ "lease_ms": 999 })), 400, "malformed", "from 1000 to 3600000"),
        case("the module flow", exchange(module("flow")), 400, "malformed", "starts a child task"),
        case("a module that is none", exchange(module("../x")), 400, "malformed", "invalid name"),
        case(
            "a module twice",
            exchange(json!({ "modules": [{ "name": "m", "free": 1 }, { "name": "m", "free": 1 }] })),
            400,
            "malformed",
            "m is there twice",
        ),
        case(
            "a command that is none",
            exchange(json!({ "modules": [{ "name": "m", "free": 1, "commands": ["../sh"] }] })),
            400,
            "malformed",
            "a command of the module m",
        ),
        case(
            "negative room",
            exchange(json!({ "modules": [{ "name": "m", "free": -1 }] })),
            400,
            "malformed",
            "-1",
        ),
        case("unknown field", exchange(json!({ "wait": 1 })), 400, "malformed", "unknown field `wait`"),
        case(
            "a long name",
            exchange(json!({ "worker": { "name": "x".repeat(257) } })),
            400,
            "malformed",
            "worker.name",
        ),
        case(
            "more attempts than a worker may have",
            exchange(json!({ "holding": vec![""; 50_001] })),
            400,
            "malformed",
            "`holding`: there are more than 50000 entries",
        ),
        case(
            "more reports than a call may have",
            exchange(json!({ "reports": vec![0; 10_001] })),
            400,
            "malformed",
            "`reports`: there are more than 10000 entries",
        ),
        case(
            "an exchange without end",
            endless("/v1/worker/exchange"),
            413,
            "too-large",
            "larger than 8 MiB",
        ),
    ]
}

fn of_the_rest() -> Vec<Case> {
    let post = |path: &str| Request::post(path).body(Body::empty()).unwrap();
    let with = |request: Request<Body>, header: &'static str, value: &str| {
        let mut request = request;
        request.headers_mut().insert(header, value.parse().unwrap());
        request
    };
    vec![
        case("unknown queue", get("/v1/queues/three"), 404, "unknown-queue", "GET /v1/queues"),
        case("pause no queue", post("/v1/queues/three/pause"), 404, "unknown-queue", "three"),
        case("unknown alarm", post("/v1/alarms/x/acknowledge"), 404, "unknown-alarm", "GET /v1/alarms"),
        case("all", get("/v1/alarms?all=1"), 400, "malformed", "true or false"),
        case("unknown path", get("/v2/tasks"), 404, "not-found", "/openapi.json"),
        case(
            "unknown method",
            Request::delete("/v1/tasks").body(Body::empty()).unwrap(),
            405,
            "method-not-allowed",
            "Allow",
        ),
        case("another host", with(get("/v1/tasks"), "host", "evil.example"), 421, "misdirected", "localhost"),
        case(
            "another site",
            with(post("/v1/queues/one/pause"), "origin", "https://evil.example"),
            403,
            "foreign-origin",
            "another site",
        ),
    ]
}

/// All that a request could have changed.
async fn everything(server: &Server) -> String {
    let mut all = String::new();
    for path in ["/v1/tasks", "/v1/flows", "/v1/queues", "/v1/workers", "/v1/alarms?all=true"] {
        all.push_str(&server.get(path).await.text);
    }
    all
}

#[tokio::test]
async fn bad_input_is_refused_and_changes_nothing() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let used = server.post("/v1/tasks", &json!({ "flow": "f", "key": "used" })).await.json();
    server.verb(&format!("/v1/tasks/{}/cancel", used["id"].as_str().unwrap())).await;
    let running = server.submit("f", json!({})).await;
    Worker::new(&server, 9, &["one"]).take().await;
    let ended = used["id"].as_str().unwrap().to_owned();
    let before = everything(&server).await;

    let cases = [of_submits(), of_tasks(&ended, &running), of_flows(), of_workers(), of_the_rest()];
    for Case { what, request, status, problem, detail } in cases.into_iter().flatten() {
        let answer = server.send(request).await;
        let found: Problem = read(what, &answer);
        assert_eq!((answer.status.as_u16(), found.status), (status, status), "{what}: {}", answer.text);
        assert_eq!(found.name(), problem, "{what}: {}", answer.text);
        assert!(found.detail.contains(detail), "{what}: {:?} is not in {:?}", detail, found.detail);
        assert_eq!(everything(&server).await, before, "{what} has changed something");
    }
}

fn read(what: &str, answer: &Answer) -> Problem {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}: {answer:?}");
    serde_json::from_str(&answer.text).unwrap_or_else(|error| panic!("{what}: {error} in {:?}", answer.text))
}

#[tokio::test]
async fn refusals_say_where() {
    let server = Server::start().await;
    let place = |answer: Answer| {
        let problem = read("", &answer);
        (problem.line, problem.column)
    };
    let body = "{\n  \"flow\": \"f\",\n  \"parms\": {}\n}";
    assert_eq!(place(server.send(submit(body)).await), (Some(3), Some(9)));
    let two =
        r#"{"steps": [{"name": "a", "run": "m"}, {"name": "b", "run": "m.b"}, {"name": "c", "run": "m"}]}"#;
    for request in [submit(two), yaml("/v1/flows/f", two)] {
        let problem = read("", &server.send(request).await);
        let places: Vec<_> = problem.errors.iter().map(|error| (error.line, error.column)).collect();
        assert_eq!(places, [(Some(1), Some(33)), (Some(1), Some(89))], "{problem:?}");
        assert!(problem.errors[0].detail == problem.detail && problem.column == Some(33), "{problem:?}");
        let instance = problem.instance.expect("it has a name");
        assert!(instance.starts_with("urn:uuid:") && instance.len() == 45, "{instance}");
    }
    let flow = "steps:\n  - name: a\n    run: m.c\n    timeout: -5m\n";
    assert_eq!(place(server.send(yaml("/v1/flows/f", flow)).await), (Some(4), Some(14)));
    let flow = "{\n  \"steps\": [\n    { \"name\": \"a\", \"run\": \"m.c\", \"retrys\": 1 }\n  ]\n}";
    let request = json_request(Method::PUT, "/v1/flows/f", flow);
    assert_eq!(place(server.send(request).await), (Some(3), Some(34)));
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let server = Server::start().await;
    let answer = server.send(Request::delete("/v1/flows/f").body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status.as_u16(), 405);
    let allowed = answer.header("allow").unwrap();
    assert!(allowed.contains("GET") && allowed.contains("PUT") && !allowed.contains("POST"), "{allowed}");
}
