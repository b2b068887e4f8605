//! The end of a worker.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;
use windlass_client::{Client, Failure, Job, Outcome, Worker, api::ReportOutcome};

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
    let said: Vec<Option<bool>> = book.polls().map(|poll| poll.draining).collect();
    assert!(said[0].is_none() && said.contains(&Some(true)), "{said:?}");
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
    let mut took = Duration::MAX;
    for _ in 0..3 {
        let server = ExchangeServer::start();
        let worker = RunningWorker::start(&server, handler(|_job| async { Outcome::Declined }));
        server.desk.until("its poll", |book| book.polls().count() == 1).await;
        let asked = Instant::now();
        worker.drained().await.unwrap();
        took = asked.elapsed();
        assert_eq!(server.desk.book().polls().last().unwrap().free, Some(0));
        // A busy machine may delay a worker.
        if took < Duration::from_secs(1) {
            return;
        }
    }
    panic!("no worker of three left within 1 s: the last one took {took:?}");
}

#[tokio::test]
async fn a_worker_whose_server_is_gone_still_leaves() {
    let mut server = ExchangeServer::start();
    let worker = RunningWorker::start(&server, handler(|_job| async { Outcome::Declined }));
    server.desk.until("its poll", |book| book.polls().count() == 1).await;
    server.kill();
    worker.drained().await.unwrap();
}

fn send_terminate() {
    let pid = std::process::id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
}

/// Notes that a handler's future was dropped.
struct DropNote(Arc<AtomicBool>);

impl Drop for DropNote {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One test, because signals reach the whole process.
#[tokio::test]
async fn a_signal_drains_and_a_second_one_stops_at_once() {
    let server = ExchangeServer::start();
    server.desk.offer([attempt("a")]);
    let dropped = Arc::new(AtomicBool::new(false));
    let note = dropped.clone();
    let endless = handler(move |_job| {
        let note = DropNote(note.clone());
        async move {
            std::future::pending::<()>().await;
            drop(note);
            Outcome::Succeeded(None)
        }
    });
    let client = Client::new(&server.address.to_string()).unwrap();
    let worker = Worker::builder(client).module("m", None, endless).build().unwrap();
    let end = tokio::spawn(worker.run_until_signal());
    server.desk.until("a poll while it runs", |book| book.polls().count() == 2).await;
    send_terminate();
    server
        .desk
        .until("a poll that wants nothing", |book| book.polls().any(|poll| poll.free == Some(0)))
        .await;
    assert!(!end.is_finished() && !dropped.load(Ordering::SeqCst), "the first signal waits for what runs");
    send_terminate();
    let ended =
        tokio::time::timeout(Duration::from_secs(5), end).await.expect("the second signal waits for nothing");
    ended.unwrap().unwrap();
    while !dropped.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
}
