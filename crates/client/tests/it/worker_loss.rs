//! Answers that are lost, servers that are killed, leases that lapse.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use windlass_client::{Failure, Handler, Job, Outcome, api::ReportOutcome};

use crate::{
    exchange_server::ExchangeServer,
    support::{RunningWorker, attempt, handler, message},
};

/// Longer than anything here takes on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(20);

/// A handler that waits until the test lets it end, and how often it was begun.
fn gated() -> (Arc<dyn Handler>, Arc<Semaphore>, Arc<AtomicUsize>) {
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::new(AtomicUsize::new(0));
    let (wait, count) = (gate.clone(), begun.clone());
    let handler = handler(move |_job| {
        let wait = wait.clone();
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            wait.acquire().await.unwrap().forget();
            Outcome::Succeeded(None)
        }
    });
    (handler, gate, begun)
}

#[tokio::test]
async fn a_report_whose_answer_was_lost_is_sent_again() {
    let server = ExchangeServer::start();
    server.desk.change(|book| book.lose_report_answers = 3);
    server.desk.offer([attempt("a")]);
    let (handler, gate, begun) = gated();
    gate.add_permits(1);
    let worker = RunningWorker::start(&server, handler);
    server.desk.until("three duplicates", |book| book.duplicates == 3).await;
    worker.drained().await.unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    let book = server.desk.book();
    let reports: Vec<_> = book.report_calls().map(|call| call.reports[0].get()).collect();
    assert_eq!(reports.len(), 4);
    assert!(reports.iter().all(|report| *report == reports[0]));
}

#[tokio::test]
async fn attempts_whose_answer_was_lost_are_missed_in_holding_and_come_again() {
    let server = ExchangeServer::start();
    server.desk.change(|book| book.lose_attempts = 2);
    server.desk.offer([attempt("a")]);
    let (handler, gate, begun) = gated();
    gate.add_permits(1);
    let worker = RunningWorker::start(&server, handler);
    server.desk.until("the report", |book| book.done.contains_key("a")).await;
    worker.drained().await.unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

/// A server that has handed out the attempts `long` and `short`, and a poll that waits there and names both.
async fn holding_both(handler: Arc<dyn Handler>) -> (ExchangeServer, RunningWorker) {
    let server = ExchangeServer::start();
    server.desk.offer([attempt("long"), attempt("short")]);
    let worker = RunningWorker::start(&server, handler);
    server
        .desk
        .until("a poll that holds both", |book| {
            book.polls().any(|poll| poll.holding.as_ref().is_some_and(|holding| holding.len() == 2))
        })
        .await;
    (server, worker)
}

#[tokio::test]
async fn a_server_that_was_killed_and_started_again_hears_at_once_what_the_worker_holds() {
    let (handler, gate, begun) = gated();
    let (mut server, worker) = holding_both(handler).await;

    server.kill();
    let before = server.desk.book().calls.len();
    // Long enough for the pauses between the polls to have grown.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.start_again();
    server.desk.until("a call", |book| book.calls.len() > before).await;
    gate.add_permits(2);
    server.desk.until("both reports", |book| book.done.len() == 2).await;
    worker.drained().await.unwrap();

    assert_eq!(begun.load(Ordering::SeqCst), 2, "nothing was run twice");
    let poll = server.desk.book().calls[before].clone();
    let mut holding = poll.holding.unwrap();
    holding.sort();
    assert_eq!(holding, ["long", "short"]);
    assert_eq!(poll.worker.unwrap().name, "test");
    assert_eq!(poll.wait_ms, 0, "the lease may soon be over: an answer at once renews it");
}

#[tokio::test]
async fn an_attempt_that_ends_while_no_server_is_there_is_reported_when_one_is() {
    let (handler, gate, begun) = gated();
    let (mut server, worker) = holding_both(handler).await;

    server.kill();
    gate.add_permits(1);
    // Both lines of calls, the polls and the reports, fail several times.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.start_again();
    server.desk.until("the report", |book| book.done.len() == 1).await;
    gate.add_permits(1);
    server.desk.until("both reports", |book| book.done.len() == 2).await;
    worker.drained().await.unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 2, "nothing was run twice");
}

#[tokio::test]
async fn a_worker_may_be_there_before_its_server() {
    let mut server = ExchangeServer::start();
    server.kill();
    server.desk.offer([attempt("a")]);
    let worker = RunningWorker::start(&server, handler(|_job| async { Outcome::Succeeded(None) }));
    tokio::time::sleep(Duration::from_millis(150)).await;
    server.start_again();
    server.desk.until("the report", |book| book.done.contains_key("a")).await;
    worker.drained().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_cannot_renew_its_lease_stops_its_attempts_and_spends_no_retry() {
    let mut server = ExchangeServer::start();
    // The worker polls every 1.5 s. It stops its attempts 4 s after it has sent the last poll that was answered.
    server.desk.change(|book| book.lease_ms = Some(6000));
    server.desk.offer([attempt("told"), attempt("deaf")]);
    let stopped_after = Arc::new(AtomicUsize::new(0));
    let note = stopped_after.clone();
    let until_told = handler(move |job: Job| {
        let note = note.clone();
        async move {
            if job.attempt.token == "deaf" {
                std::future::pending::<()>().await;
            }
            job.cancelled().await;
            note.fetch_add(1, Ordering::SeqCst);
            Outcome::Failed(Failure::new("killed").with_code(143))
        }
    });
    let worker = RunningWorker::start(&server, until_told);
    // The fifth poll comes after 4.5 s.
    server.desk.until("some polls", |book| book.polls().count() > 4).await;
    assert_eq!(stopped_after.load(Ordering::SeqCst), 0, "polls keep the lease");
    server.kill();
    let killed = Instant::now();
    while stopped_after.load(Ordering::SeqCst) == 0 {
        assert!(killed.elapsed() < PATIENCE, "it is stopped while no server is there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.start_again();
    server.desk.until("both reports", |book| book.done.len() == 2).await;
    worker.drained().await.unwrap();
    let book = server.desk.book();
    for report in book.done.values() {
        assert_eq!(report.outcome, ReportOutcome::RetryLater);
        assert!(message(report).contains("lost its server"), "{report:?}");
    }
    assert!(message(&book.done["told"]).ends_with("killed"));
}
