//! Lists that have several pages come whole, with the same filter on each, and a list without an end is an error.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Json, Router, extract::State, http::Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use windlass_client::{Client, Error};

/// How many pages each list has.
const PAGES: usize = 3;

/// A server whose every list has [`PAGES`] pages of one item; a request that leaves its filter out on a later page
/// is given an item that says so.
async fn paged() -> Client {
    async fn list(uri: Uri) -> Json<Value> {
        let query = uri.query().unwrap_or_default();
        let page = query.split('&').find_map(|pair| pair.strip_prefix("cursor=page%2B")).unwrap_or("0");
        let page: usize = page.parse().unwrap();
        let next = (page + 1 < PAGES).then(|| format!("page+{}", page + 1));
        let at = "2026-01-01T00:00:00Z";
        let item = match uri.path() {
            "/v1/flows" => {
                json!({"name": format!("f{page}"), "version": 1, "created_at": at, "definition": {}})
            }
            "/v1/queues" => {
                json!({"name": format!("q{page}"), "ready": 0, "running": 0, "paused": false, "workers": 0})
            }
            "/v1/workers" => json!({
                "id": "s", "name": format!("w{page}"), "host": "h", "version": "1", "attached": true,
                "modules": [], "running": 0, "last_seen_at": at,
            }),
            "/v1/alarms" => {
                assert!(query.contains("all=true"), "{query}");
                json!({
                    "id": format!("a{page}"), "kind": "poisoned", "message": "", "raised_at": at,
                    "state": "raised",
                })
            }
            "/v1/tasks/t/logs" => json!({
                "number": 1, "at": at, "step": "s", "direction": "forward", "attempt": 1, "line": format!("l{page}"),
            }),
            "/v1/tasks/t/events" => {
                assert_eq!(
                    query.contains("after="),
                    page == 0,
                    "a cursor is given instead of `after`: {query}"
                );
                json!({"n": page + 8, "task": "t", "at": at, "kind": "step.ready", "data": {}})
            }
            other => panic!("asked for {other}"),
        };
        Json(json!({"items": [item], "next": next}))
    }
    connect(Router::new().fallback(list)).await
}

async fn connect(app: Router) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Client::new(&address.to_string()).unwrap()
}

#[tokio::test]
async fn every_list_comes_whole() {
    let client = paged().await;
    let (flows, queues) = (client.flows().await.unwrap(), client.queues().await.unwrap());
    let (workers, alarms) = (client.workers().await.unwrap(), client.alarms(true).await.unwrap());
    let (logs, events) =
        (client.task_logs("t", None).await.unwrap(), client.task_events("t", 7).await.unwrap());
    let ends = [flows.next, queues.next, workers.next, alarms.next, logs.next, events.next];
    assert!(ends.iter().all(Option::is_none), "{ends:?}");
    let names = [
        flows.items.into_iter().map(|flow| flow.name).collect::<Vec<_>>().join(" "),
        queues.items.into_iter().map(|queue| queue.name).collect::<Vec<_>>().join(" "),
        workers.items.into_iter().map(|worker| worker.name).collect::<Vec<_>>().join(" "),
        alarms.items.into_iter().map(|alarm| alarm.id).collect::<Vec<_>>().join(" "),
        logs.items.into_iter().map(|line| line.line).collect::<Vec<_>>().join(" "),
        events.items.into_iter().map(|event| event.n.unwrap().to_string()).collect::<Vec<_>>().join(" "),
    ];
    assert_eq!(names, ["f0 f1 f2", "q0 q1 q2", "w0 w1 w2", "a0 a1 a2", "l0 l1 l2", "8 9 10"]);
}

#[tokio::test]
async fn a_list_whose_pages_lead_back_is_no_list() {
    async fn list(State(asked): State<Arc<AtomicUsize>>) -> Json<Value> {
        asked.fetch_add(1, Ordering::SeqCst);
        Json(json!({"items": [], "next": "again"}))
    }
    let asked = Arc::new(AtomicUsize::new(0));
    let client = connect(Router::new().fallback(list).with_state(asked.clone())).await;
    let Err(Error::Malformed { call, detail, .. }) = client.flows().await else {
        panic!("it came to an end")
    };
    assert_eq!((call.as_str(), asked.load(Ordering::SeqCst)), ("GET /v1/flows", 2));
    assert!(detail.contains("again"), "{detail}");
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up() {
    async fn list(State(asked): State<Arc<AtomicUsize>>) -> Json<Value> {
        let page = asked.fetch_add(1, Ordering::SeqCst);
        Json(json!({"items": [], "next": page.to_string()}))
    }
    let asked = Arc::new(AtomicUsize::new(0));
    let client = connect(Router::new().fallback(list).with_state(asked.clone())).await;
    let Err(Error::Malformed { detail, .. }) = client.queues().await else { panic!("it came to an end") };
    assert!(detail.contains("1000 pages"), "{detail}");
    assert_eq!(asked.load(Ordering::SeqCst), 1000);
}
