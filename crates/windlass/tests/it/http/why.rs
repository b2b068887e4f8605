//! One true sentence for every place a task can be in.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::server::{Server, Worker};

const FLOW: &str = "
steps:
  - { name: check, run: resource.check, rollback: resource.restore }
  - { name: init, run: mysql.init, retry: { max: 1, backoff: fixed, base: 12s, cap: 12s } }
";

async fn why(server: &Server, id: &str) -> String {
    let why = server.get(&format!("/v1/tasks/{id}/why")).await.json();
    let step = why["step"].as_str().unwrap_or("-");
    format!("{} ({step}): {}", why["reason"].as_str().unwrap(), why["sentence"].as_str().unwrap())
        .replace(id, "ID")
}

#[tokio::test]
async fn a_worker_that_drains_takes_nothing_more() {
    let server = Server::start().await;
    server.apply("f", "steps: [{ name: one, run: m.c }]").await;
    let id = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    let offer = json!([{ "name": "m", "free": 0 }]);
    worker.call(json!({ "modules": offer, "holding": [] })).await;
    assert_eq!(server.get(&format!("/v1/tasks/{id}/why")).await.json()["reason"], "queued");
    worker.call(json!({ "modules": offer, "holding": [], "draining": true })).await;
    assert_snapshot!(why(&server, &id).await, @"no_worker (one): Step one waits for a worker that serves m.c: the one worker that serves it drains and takes nothing more.");
    worker.call(json!({ "modules": offer, "holding": [] })).await;
    let reason = server.get(&format!("/v1/tasks/{id}/why")).await.json();
    assert_eq!(reason["data"]["workers_draining"], 1, "it need not say so in each call: {reason}");
    assert_eq!(server.get("/v1/workers").await.json()["items"][0]["draining"], true);
    let queue = server.get("/v1/queues/m").await.json();
    assert_eq!((&queue["workers"], &queue["draining"]), (&json!(1), &json!(1)));
    worker.call(json!({ "modules": offer, "holding": [], "draining": false })).await;
    assert_eq!(server.get(&format!("/v1/tasks/{id}/why")).await.json()["reason"], "queued");
}

#[tokio::test]
async fn waiting_for_a_worker() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    assert_snapshot!(why(&server, &id).await, @"no_worker (check): Step check waits for a worker that serves resource.check: no worker is connected; none of resource was seen since this server started 750ms ago.");
    Worker::new(&server, 1, &["mysql"]).poll().await;
    assert_snapshot!(why(&server, &id).await, @"no_worker (check): Step check waits for a worker that serves resource.check: the one connected worker does not; none of resource was seen since this server started 750ms ago.");
    let other_command = json!({ "modules": [{ "name": "resource", "commands": ["restore"], "free": 1 }] });
    Worker::new(&server, 2, &[]).call(other_command).await;
    assert_snapshot!(why(&server, &id).await, @"no_worker (check): Step check waits for a worker that serves resource.check: the connected worker of resource does not have this command; restart it if the command is new.");
}

#[tokio::test]
async fn waiting_for_its_turn() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    server.verb("/v1/queues/resource/pause").await;
    let first = server.submit("f", json!({})).await;
    let second = server.submit("f", json!({})).await;
    let third = server.submit("f", json!({})).await;
    server.pass(65_000).await;
    assert_snapshot!(why(&server, &first).await, @"queue_paused (check): Step check is ready, but the queue resource was paused 1m 5s ago by ops (claimed): `windlass queue resume resource` lets it go on.");
    let mut worker = Worker::new(&server, 1, &["resource"]);
    worker.poll().await;
    server.verb("/v1/queues/resource/resume").await;
    assert_snapshot!(why(&server, &first).await, @"queued (check): Step check is the next in the queue resource, once one of its workers is free (one worker connected; no estimate: nothing of the queue was handed out in the last minute).");
    assert_snapshot!(why(&server, &second).await, @"queued (check): Step check is second in the queue resource (one worker connected; no estimate: nothing of the queue was handed out in the last minute).");
    assert_snapshot!(why(&server, &third).await, @"queued (check): Step check waits in the queue resource behind 2 others (one worker connected; no estimate: nothing of the queue was handed out in the last minute).");
}

#[tokio::test]
async fn running_and_retrying() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["resource", "mysql"]);
    let attempt = worker.take().await;
    server.pass(3200).await;
    assert_snapshot!(why(&server, &id).await, @"running (check): Attempt 1 of step check has been with worker worker-1 for 3s.");
    worker.report(&attempt, "succeeded", json!({})).await;
    worker.run("failed", json!({ "error": { "message": "connection refused" } })).await;
    let retry = why(&server, &id).await;
    // The delay has jitter.
    let (before, rest) = retry.split_once("due in ").unwrap();
    let (seconds, after) = rest.split_once("s;").unwrap();
    assert!((6..=12).contains(&seconds.parse::<u32>().unwrap()), "{retry}");
    assert_snapshot!(format!("{before}due in Ns;{after}"), @"retry (init): Retry 1 of 1 of step init is due in Ns; the last attempt failed: connection refused.");
}

#[tokio::test]
async fn held_by_a_person() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["resource", "mysql"]);
    let attempt = worker.take().await;
    server.verb(&format!("/v1/tasks/{id}/pause")).await;
    assert_snapshot!(why(&server, &id).await, @"task_paused (-): The task was paused by ops (claimed) 0s ago: one attempt is still in flight, nothing new starts. At the same time: step check is with worker worker-1.");
    worker.report(&attempt, "succeeded", json!({})).await;
    assert_snapshot!(why(&server, &id).await, @"task_paused (-): The task was paused by ops (claimed) 0s ago: nothing starts until somebody resumes it.");
    server.verb(&format!("/v1/tasks/{id}/resume")).await;
    worker.take().await;
    server.verb(&format!("/v1/tasks/{id}/cancel")).await;
    assert_snapshot!(why(&server, &id).await, @"ending (init): The task rolls back once step init has ended with worker worker-1.");
}

#[tokio::test]
async fn stuck_and_ended() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let id = server.submit("f", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["resource", "mysql"]);
    worker.run("succeeded", json!({})).await;
    let no_retry = |message: &str| json!({ "error": { "message": message, "retryable": false } });
    worker.run("failed", no_retry("no space")).await;
    worker.run("failed", no_retry("cannot restore")).await;
    assert_snapshot!(why(&server, &id).await, @"stuck (check): The task waits for an operator, because the rollback of step check failed: cannot restore; settle it with `windlass task resolve ID check retry|skip|done`.");
    let skip = json!({ "action": "skip" });
    assert_eq!(server.post(&format!("/v1/tasks/{id}/steps/check/resolve"), &skip).await.status.as_u16(), 200);
    assert_snapshot!(why(&server, &id).await, @"ended (-): The task has failed and was rolled back: step init failed: no space.");

    let id = server.submit("f", json!({})).await;
    worker.run("succeeded", json!({})).await;
    worker.run("succeeded", json!({})).await;
    assert_snapshot!(why(&server, &id).await, @"ended (-): The task has succeeded.");
    let id = server.submit("f", json!({})).await;
    worker.run("failed", no_retry("too small")).await;
    worker.run("succeeded", json!({})).await;
    assert_snapshot!(why(&server, &id).await, @"ended (-): The task has failed and was rolled back: step check failed: too small.");
    let id = server.submit("f", json!({})).await;
    server.verb(&format!("/v1/tasks/{id}/cancel")).await;
    assert_snapshot!(why(&server, &id).await, @"ended (-): The task was cancelled by ops (claimed).");
}

#[tokio::test]
async fn not_before_its_time() {
    let server = Server::start().await;
    server.apply("f", FLOW).await;
    let body = json!({ "flow": "f", "at": "2030-03-17T19:16:41Z" });
    let task: Value = server.post("/v1/tasks", &body).await.json();
    assert_eq!(task["status"], "scheduled");
    assert_snapshot!(why(&server, task["id"].as_str().unwrap()).await, @"scheduled (-): The task starts in 1h 30m, at 2030-03-17T19:16:41Z.");
}

#[tokio::test]
async fn what_else_is_waited_for_comes_in_half_sentences() {
    let server = Server::start().await;
    let flow = "
on_error: mail.tell
on_failure: rollback
steps:
  - { name: one, run: m.one }
  - { name: two, run: m.two, after: [] }
  - { name: three, wait: go, after: [] }
  - { name: four, run: n.four, after: [] }
  - { name: five, run: n.five, after: [] }
";
    server.apply("g", flow).await;
    let id = server.submit("g", json!({})).await;
    let mut worker = Worker::new(&server, 1, &["m"]);
    let first = worker.take().await;
    assert_snapshot!(why(&server, &id).await, @"running (one): Attempt 1 of step one has been with worker worker-1 for 0s. At the same time: step two waits for its turn in the queue m, step three waits for the signal go, step four waits for a worker of n, and 1 more.");
    let no_retry = json!({ "error": { "message": "no space", "retryable": false } });
    assert_eq!(worker.report(&first, "failed", no_retry.clone()).await, "accepted");
    Worker::new(&server, 2, &["mail"]).run("failed", no_retry).await;
    assert_snapshot!(why(&server, &id).await, @"stuck (on_error): The task waits for an operator, because the step for errors failed: no space; settle it with `windlass task resolve ID on_error retry|skip|done`.");
}
