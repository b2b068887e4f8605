//! The end of a worker.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use windlass_client::{Failure, Job, Outcome, api::ReportOutcome};

use crate::{
    exchange_server::ExchangeServer,
    support::{RunningWorker, attempt, handler, message},
};

#[tokio::test]
async fn a_drain_lets_what_runs_end_and_gives_the_rest_back() {
    let server = ExchangeServer::start();
    server.desk.change(|book| book.ignore_free = true);
    server.desk.offer(["a", "b", "c", "d"].map(attempt));
    let gate = Arc::new(Semaphore::new(0));
    let wait = gate.clone();
    let gated = handler(move |_job| {
        let wait = wait.clone();
        async move {
            wait.acquire().await.unwrap().forget();
            Outcome::Succeeded(None)
        }
    });
    let mut worker = RunningWorker::start_with(&server, |b| b.module("m", None, gated).concurrency(2));
    server.desk.until("a poll while they run", |book| book.polls().count() == 2).await;
    server.desk.change(|book| book.ignore_free = false);
    worker.shut_down();
    server.desk.until("what waited", |book| book.done.len() == 2).await;
    server
        .desk
        .until("a poll that wants nothing and holds the others", |book| {
            book.polls().last().is_some_and(|poll| poll.free == Some(0) && poll.wait_ms > 0)
        })
        .await;
    server.desk.offer([attempt("e")]);
    gate.add_permits(2);
    worker.drained().await.unwrap();

    let book = server.desk.book();
    for (token, outcome) in [
        ("a", ReportOutcome::Succeeded),
        ("b", ReportOutcome::Succeeded),
        ("c", ReportOutcome::Declined),
        ("d", ReportOutcome::Declined),
    ] {
        assert_eq!(book.done[token].outcome, outcome, "{token}");
    }
    assert!(!book.done.contains_key("e"), "a draining worker takes nothing");
}

#[tokio::test]
async fn a_drain_stops_what_takes_too_long() {
    let server = ExchangeServer::start();
    server.desk.offer([attempt("a")]);
    let until_told = handler(|job: Job| async move {
        job.cancelled().await;
        Outcome::Failed(Failure::new("killed"))
    });
    let worker = RunningWorker::start_with(&server, |b| {
        b.module("m", None, until_told).drain_timeout(Duration::from_millis(50))
    });
    server.desk.until("a poll while it runs", |book| book.polls().count() == 2).await;
    worker.drained().await.unwrap();
    let book = server.desk.book();
    assert_eq!(book.done["a"].outcome, ReportOutcome::RetryLater);
    assert!(message(&book.done["a"]).contains("shut down"));
}

#[tokio::test]
async fn an_idle_worker_leaves_at_once() {
    let server = ExchangeServer::start();
    let worker = RunningWorker::start(&server, handler(|_job| async { Outcome::Declined }));
    server.desk.until("its poll", |book| book.polls().count() == 1).await;
    let asked = Instant::now();
    worker.drained().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(server.desk.book().polls().last().unwrap().free, Some(0));
}

#[tokio::test]
async fn a_worker_whose_server_is_gone_still_leaves() {
    let mut server = ExchangeServer::start();
    let worker = RunningWorker::start(&server, handler(|_job| async { Outcome::Declined }));
    server.desk.until("its poll", |book| book.polls().count() == 1).await;
    server.kill();
    worker.drained().await.unwrap();
}
