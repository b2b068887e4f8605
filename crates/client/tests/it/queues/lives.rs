//! How workers over a broker begin, drain and die, and what the others do then.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::Value;
use windlass_brokers::Queue;
use windlass_client::{Client, Handler, Outcome, Worker};
use windlass_testkit::Proxy;

use super::{Bench, counting, step, until_stopped, until_told};
use crate::support::{RunningWorker, handler};

/// A worker with this lease.
fn leased(bench: &Bench, lease: Duration, handler: Arc<dyn Handler>) -> RunningWorker {
    RunningWorker::start_built(bench.one_way(handler).lease(lease).build().unwrap())
}

#[tokio::test]
async fn what_a_worker_that_died_had_is_run_by_another() {
    let Some(bench) = Bench::start("death") else { return };
    bench.publish([step("a")]).await;
    let lease = Duration::from_secs(1);
    let dying = leased(&bench, lease, until_stopped());
    bench.results(1).await;
    dying.killed().await;
    let (_, handler) = counting();
    let heir = leased(&bench, lease, handler);
    let events: Vec<Value> =
        bench.results(2).await.into_iter().map(|result| result["Event"].clone()).collect();
    assert_eq!(events, ["started", "succeeded"]);
    bench.emptied().await;
    heir.drained().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_is_slow_and_alive_keeps_what_it_has() {
    let Some(bench) = Bench::start("kept") else { return };
    bench.publish([step("a")]).await;
    let slow = handler(|_job| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Outcome::Succeeded(None)
    });
    let lease = Duration::from_secs(4);
    let worker = leased(&bench, lease, slow);
    bench.results(1).await;
    let (ran, handler) = counting();
    let other = leased(&bench, lease, handler);
    assert_eq!(bench.results(1).await[0]["Event"], "succeeded");
    bench.emptied().await;
    worker.drained().await.unwrap();
    other.drained().await.unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_drain_ends_what_runs_and_leaves_the_rest_to_others() {
    let Some(bench) = Bench::start("drain") else { return };
    let (go, held) = until_told();
    bench.publish([step("a")]).await;
    let mut first = bench.start_one_way(held);
    assert_eq!(bench.results(1).await[0]["Event"], "started");
    first.shut_down();
    bench.publish([step("b")]).await;
    let (_, handler) = counting();
    let second = bench.start_one_way(handler);
    assert!(bench.results(2).await.iter().all(|result| result["Token"] == "b"));
    go.send(true).unwrap();
    assert_eq!(bench.results(1).await[0]["Token"], "a");
    first.drained().await.unwrap();
    bench.emptied().await;
    second.drained().await.unwrap();
}

#[tokio::test]
async fn what_a_drain_stops_is_given_back_and_not_told() {
    let Some(bench) = Bench::start("stopped") else { return };
    bench.publish([step("a")]).await;
    let worker = bench.one_way(until_stopped()).drain_timeout(Duration::ZERO).build().unwrap();
    let worker = RunningWorker::start_built(worker);
    bench.results(1).await;
    worker.drained().await.unwrap();
    assert_eq!((bench.left(&bench.queue).await, bench.left(&bench.results).await), (1, 0));
    let (ran, handler) = counting();
    let heir = bench.start_one_way(handler);
    bench.results(2).await;
    heir.drained().await.unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1, "it came back at once, not after the silence of a dead worker");
}

#[tokio::test]
async fn results_wait_for_a_broker_that_is_away() {
    let Some(server) = windlass_testkit::Redis::shared().unwrap() else { return };
    let proxy = Proxy::start(server.port()).unwrap();
    let near = Bench::at(&server.url(), "away", None);
    let bench = Bench::at(&server.url_at(proxy.port()), "away", None);
    near.publish([step("a")]).await;
    let (go, held) = until_told();
    let worker = bench.start_one_way(held);
    near.results(1).await;
    proxy.cut();
    go.send(true).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.heal();
    let mut event = near.results(1).await[0]["Event"].clone();
    if event == "started" {
        // The cut took the broker's answer to it, so it was sent again.
        event = near.results(1).await[0]["Event"].clone();
    }
    assert_eq!(event, "succeeded");
    near.emptied().await;
    worker.drained().await.unwrap();
}

#[tokio::test]
async fn a_broker_that_refuses_ends_the_worker_and_mistakes_are_told() {
    let Some(bench) = Bench::start("refused") else { return };
    let (_, handler) = counting();
    let server = windlass_testkit::Redis::shared().unwrap().unwrap();
    server.ask(&["SET", &bench.queue.name, "no stream"]).unwrap();
    let worker = bench.one_way(handler.clone()).build().unwrap();
    let error = RunningWorker::start_built(worker).ended().await.unwrap_err().to_string();
    assert!(error.contains("has something else in it"), "{error}");

    let heap = |name: &str| Queue { name: name.to_owned(), kind: Some("heap".to_owned()) };
    let shared = Worker::one_way(bench.broker.clone(), Queue::new("m")).module("m", None, handler.clone());
    let one_way = Worker::one_way(bench.broker.clone(), heap("r")).module("m", None, handler.clone());

    let client =
        || Worker::builder(Client::new("127.0.0.1:7700").unwrap()).module("m", None, handler.clone());
    for (builder, words) in [
        (client().queue("m", Queue::new("m")), "call `over` before"),
        (client().over(bench.broker.clone()).over(bench.broker.clone()), "two brokers"),
        (client().over(bench.broker.clone()).queue("n", Queue::new("n")), "does not serve"),
        (client().over(bench.broker.clone()).queue("m", heap("h")), "no queues of the kind heap: h can be"),
        (
            client()
                .module("n", None, handler.clone())
                .over(bench.broker.clone())
                .queue("n", Queue::new("m")),
            "two modules",
        ),
        (shared, "for a module and for results"),
        (one_way, "no queues of the kind heap: r can be"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
